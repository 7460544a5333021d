"""Actions of operators and users during fault injection."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.faults.context import FaultContext
from tests.faults.scenario import ENDLESS, Fault
from tests.faults.system.server import Server

from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.model.tenants.tenant import Tenant
from fairlead.store import Audit


async def submit(world: FaultContext, server: Server, spec: JobSpec) -> None:
    """Submit a job."""
    job = await server.live.jobs.submit(spec, "operator")
    world.checks.acknowledged.add(job.id)


async def _submit_and_cancel(world: FaultContext, server: Server, after_s: float) -> None:
    """Submit an endless job and cancel it at about the time of its launch."""
    job = await server.live.jobs.submit(ENDLESS, "operator")
    world.checks.acknowledged.add(job.id)
    world.loop.call_later(after_s, world.client, cancel, job.id)


async def cancel(world: FaultContext, server: Server, job_id: str) -> None:
    """Cancel a job."""
    world.checks.may_be_cancelled.add(job_id)
    try:
        await server.live.jobs.cancel(job_id, "operator")
    except FairleadError:
        return  # the job has already ended
    world.checks.cancelled.add(job_id)


async def _suspend(world: FaultContext, server: Server, job_id: str, for_s: float) -> None:
    world.checks.may_be_held.add(job_id)
    world.loop.call_later(for_s, world.client, resume, job_id)
    undone = world.checks.undone[job_id]
    try:
        await server.live.jobs.suspend(job_id, "operator")
    except FairleadError:
        return
    if world.checks.undone[job_id] == undone:
        world.checks.held.add(job_id)


async def resume(world: FaultContext, server: Server, job_id: str) -> None:
    """Resume a suspended job."""
    world.checks.undone[job_id] += 1
    world.checks.held.discard(job_id)
    try:
        await server.live.jobs.resume(job_id, "operator")
    except FairleadError:
        return
    world.checks.may_be_held.discard(job_id)


async def drain(world: FaultContext, server: Server, node: str, for_s: float) -> None:
    """Drain a node for a while."""
    world.checks.ever_closed.add(node)
    world.loop.call_later(for_s, world.client, return_node, node)
    undone = world.checks.undone[node]
    await server.live.nodes.drain(node, "operator")
    if world.checks.undone[node] == undone:
        world.checks.drained.add(node)
        world.checks.require(node in server.live.nodes.drained, f"{node} is not drained")


async def cordon(world: FaultContext, server: Server, node: str, for_s: float) -> None:
    """Cordon a node for a while."""
    world.checks.ever_closed.add(node)
    world.loop.call_later(for_s, world.client, return_node, node)
    undone = world.checks.undone[node]
    await server.live.nodes.cordon(node, "operator")
    if world.checks.undone[node] == undone:
        world.checks.cordoned.add(node)


async def return_node(world: FaultContext, server: Server, node: str) -> None:
    """Return a drained or cordoned node."""
    world.checks.undone[node] += 1
    world.checks.drained.discard(node)
    world.checks.cordoned.discard(node)
    try:
        await server.live.nodes.return_node(node, "operator")
    except FairleadError:
        known = node in {known.id for known in server.live.scheduler.cluster.nodes}
        removed = node in world.checks.may_be_removed
        world.checks.require(removed or not known, f"{node} cannot be returned")


async def _remove(world: FaultContext, server: Server, node: str) -> None:
    """Remove a node and preempt its leases."""
    if node not in {known.id for known in server.live.scheduler.cluster.nodes}:
        world.loop.call_later(0.5, world.client, _remove, node)  # the node is about to join
        return
    world.checks.may_be_removed.add(node)
    await server.live.nodes.drain(node, "operator")
    await server.live.nodes.remove(node, "operator")
    world.checks.removed.add(node)


async def set_tenant(world: FaultContext, server: Server, name: str, weight: float) -> None:
    """Set a tenant's weight and limits."""
    world.checks.weights.pop(name, None)
    tenant = Tenant(name, weight=weight, limit=world.plan.limits.get(name, {}))
    await server.live.tenants.set(tenant, "operator")
    world.checks.weights[name] = weight


async def _priority(world: FaultContext, server: Server, job_id: str, priority: int) -> None:
    del world
    jobs = server.live.scheduler.jobs
    job = replace(jobs.jobs[jobs.number[job_id]], priority=priority)
    audit = Audit(0.0, "operator", "change", job_id)
    try:
        await server.live.jobs.change(lambda at: ev.JobChanged(at, job), audit)
    except FairleadError:
        return


async def _change_policy(world: FaultContext, server: Server) -> None:
    """Switch the running server to the live config, or back to that of its start."""
    policy, live_config = server.live.policy, world.plan.live_config
    assert live_config is not None
    before = policy.config
    wanted = server.live.config.scheduling if before is live_config else live_config
    world.checks.live_policy = None
    try:
        await policy.request(before, wanted, "operator")
    except ProtocolError:
        return  # another change came first
    world.checks.live_policy = server.live.config.start_settings, wanted.name


def perform_action(world: FaultContext, fault: Fault) -> None:
    """Perform one action of an operator or user."""
    what, checks = fault.what, world.checks
    job = pick_target(sorted(checks.acknowledged), fault)
    node = pick_target([node.id for node in world.nodes.cluster.nodes], fault)
    if what == "submit":
        world.client(submit, JobSpec(command=("train",), workload="small", steps=3))
    elif what == "change of mind":
        world.client(_submit_and_cancel, fault.for_s / 8.0)
    elif what == "drain":
        world.client(drain, node, fault.for_s)
    elif what == "cordon":
        world.client(cordon, node, fault.for_s)
    elif what == "remove":
        world.client(_remove, world.nodes.join_like(node))
    elif what == "policy":
        world.client(_change_policy)
    elif what == "tenant":
        world.client(set_tenant, ("red", "blue")[int(2 * fault.pick)], 1.0 + fault.for_s)
    elif job is None:
        return
    elif what == "cancel":
        world.client(cancel, job)
    elif what == "hold":
        world.client(_suspend, job, fault.for_s)
    else:
        world.client(_priority, job, int(fault.for_s))


def pick_target(candidates: Sequence[Any], fault: Fault) -> Any:
    """Return the target of a fault, None without candidates."""
    return candidates[int(fault.pick * len(candidates))] if candidates else None
