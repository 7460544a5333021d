"""What operators and users do while things go wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.faults.scenario import ENDLESS, Fault
from tests.faults.system.server import Server

from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError
from fairlead.model.job import Tenant
from fairlead.store import Audit

if TYPE_CHECKING:
    from tests.faults.world import World


async def submit(world: "World", server: Server, spec: JobSpec) -> None:
    """Hand in a job."""
    made = await server.live.submit(spec, "operator")
    world.checks.acknowledged.add(made.id)


async def _submit_and_cancel(world: "World", server: Server, after_s: float) -> None:
    """Hand in a job that would go on for ever, and end it just when it may be about to start."""
    made = await server.live.submit(ENDLESS, "operator")
    world.checks.acknowledged.add(made.id)
    world.loop.call_later(after_s, world.client, cancel, made.id)


async def cancel(world: "World", server: Server, job_id: str) -> None:
    """End a job for good."""
    world.checks.may_be_cancelled.add(job_id)
    try:
        await server.live.cancel(job_id, "operator")
    except FairleadError:
        return  # it had ended
    world.checks.cancelled.add(job_id)


async def _hold(world: "World", server: Server, job_id: str, for_s: float) -> None:
    world.checks.may_be_held.add(job_id)
    world.loop.call_later(for_s, world.client, release, job_id)
    undone = world.checks.undone[job_id]
    try:
        await server.live.hold(job_id, "operator")
    except FairleadError:
        return
    if world.checks.undone[job_id] == undone:
        world.checks.held.add(job_id)


async def release(world: "World", server: Server, job_id: str) -> None:
    """Let a held job run again."""
    world.checks.undone[job_id] += 1
    world.checks.held.discard(job_id)
    try:
        await server.live.release(job_id, "operator")
    except FairleadError:
        return
    world.checks.may_be_held.discard(job_id)


async def drain(world: "World", server: Server, node: str, for_s: float) -> None:
    """Have all jobs leave a node for a while."""
    world.checks.turned.add(node)
    world.loop.call_later(for_s, world.client, give_back, node)
    undone = world.checks.undone[node]
    await server.live.nodes.drain(node, "operator")
    if world.checks.undone[node] == undone:
        world.checks.drained.add(node)
        world.checks.require(node in server.live.nodes.drained, f"{node} is not drained")


async def cordon(world: "World", server: Server, node: str, for_s: float) -> None:
    """Start nothing new on a node for a while."""
    world.checks.turned.add(node)
    world.loop.call_later(for_s, world.client, give_back, node)
    undone = world.checks.undone[node]
    await server.live.nodes.cordon(node, "operator")
    if world.checks.undone[node] == undone:
        world.checks.cordoned.add(node)


async def give_back(world: "World", server: Server, node: str) -> None:
    """Use a drained or cordoned node again."""
    world.checks.undone[node] += 1
    world.checks.drained.discard(node)
    world.checks.cordoned.discard(node)
    try:
        await server.live.nodes.take_back(node, "operator")
    except FairleadError:
        known = node in {one.id for one in server.live.scheduler.cluster.nodes}
        removed = node in world.checks.may_be_removed
        world.checks.require(removed or not known, f"{node} cannot be used again")


async def _remove(world: "World", server: Server, node: str) -> None:
    """Give a node up for good, whatever runs there."""
    if node not in {one.id for one in server.live.scheduler.cluster.nodes}:
        world.loop.call_later(0.5, world.client, _remove, node)  # it is about to join
        return
    world.checks.may_be_removed.add(node)
    await server.live.nodes.drain(node, "operator")
    await server.live.nodes.remove(node, "operator")
    world.checks.removed.add(node)


async def set_tenant(world: "World", server: Server, name: str, weight: float) -> None:
    """Give a tenant its weight and limits."""
    world.checks.weights.pop(name, None)
    made = Tenant(name, weight=weight, limit=world.plan.limits.get(name, {}))
    await server.live.set_tenant(made, "operator")
    world.checks.weights[name] = weight


async def _priority(world: "World", server: Server, job_id: str, priority: int) -> None:
    del world
    jobs = server.live.scheduler.jobs
    job = replace(jobs.jobs[jobs.number[job_id]], priority=priority)
    audit = Audit(0.0, "operator", "change", job_id)
    try:
        await server.live.change(lambda at: ev.JobChanged(at, job), audit)
    except FairleadError:
        return


def act(world: "World", happening: Fault) -> None:
    """Have somebody do something."""
    what, checks = happening.what, world.checks
    job = one_of(sorted(checks.acknowledged), happening)
    node = one_of([node.id for node in world.nodes.cluster.nodes], happening)
    if what == "submit":
        world.client(submit, JobSpec(command=("train",), workload="small", steps=3))
    elif what == "change of mind":
        world.client(_submit_and_cancel, happening.for_s / 8.0)
    elif what == "drain":
        world.client(drain, node, happening.for_s)
    elif what == "cordon":
        world.client(cordon, node, happening.for_s)
    elif what == "remove":
        world.client(_remove, world.nodes.join_like(node))
    elif what == "tenant":
        world.client(set_tenant, ("red", "blue")[int(2 * happening.pick)], 1.0 + happening.for_s)
    elif job is None:
        return
    elif what == "cancel":
        world.client(cancel, job)
    elif what == "hold":
        world.client(_hold, job, happening.for_s)
    else:
        world.client(_priority, job, int(happening.for_s))


def one_of(among: Sequence[Any], happening: Fault) -> Any:
    """Return whom a happening hits; None if there is nobody."""
    return among[int(happening.pick * len(among))] if among else None
