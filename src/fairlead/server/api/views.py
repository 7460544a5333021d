"""What a live scheduler shows of itself."""

from typing import Any

import numpy as np

from fairlead.core.jobs import LEASE, PROFILE, STATE, JobState
from fairlead.core.tenant_usage import entitled
from fairlead.live.driver import Live
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.plan import NOBODY
from fairlead.model.snapshot import MIXED
from fairlead.server.api.schemas import (
    JobView,
    NodeView,
    ShareView,
    State,
)

_ENDED: dict[int, State] = {
    JobState.FINISHED: "finished",
    JobState.CANCELLED: "cancelled",
    JobState.FAILED: "failed",
}


def job_view(live: Live, number: int) -> JobView:
    """Return one job as it stands."""
    return JobView.model_construct(**job_row(live, number))


def job_row(live: Live, number: int) -> dict[str, Any]:
    """Return one job as it stands, as the members of a JobView."""
    jobs = live.scheduler.jobs
    job, job_id = jobs.jobs[number], jobs.ids[number]
    spec, tally = live.specs[job_id], live.ledger.of(job_id)
    state, _, kind, lease_number = jobs.ints[number].tolist()
    lease = live.leases.get(lease_number)
    kinds = live.scheduler.cluster.accelerators
    on = None if kind == NOBODY else "mixed" if kind == MIXED else kinds[kind]
    steps = max(float(jobs.steps[number]), lease.steps if lease else 0.0)
    # What an earlier lease had to say is no news once this one has made a step.
    goes_on = lease is not None and lease.has_progressed(float(jobs.saved_steps[number]))
    return {
        "id": job_id,
        "name": spec.name,
        "tenant": job.tenant,
        "state": _state(state, lease_number, job_id in live.suspended_jobs),
        "workload": job.workload,
        "gang": job.gang,
        "weight": job.weight,
        "priority": job.priority,
        "multijob": job.multijob,
        "steps_done": min(steps, float(spec.steps)) if spec.steps else steps,
        "total_steps": spec.steps,
        "accelerator": on,
        "devices": live.scheduler.leases.devices_of(lease_number),
        "accelerators_used": [*tally.accelerators],
        "leases": tally.leases,
        "preemptions": tally.preemptions,
        "failures": tally.failures,
        "submitted_at": job.arrival_at,
        "started_at": tally.started_at,
        "ended_at": tally.ended_at,
        "steps_per_s": lease.steps_per_s if lease else None,
        "metrics": lease.metrics if lease else {},
        "message": "" if goes_on else live.messages.get(job_id, ""),
        "command": [*spec.command],
    }


def _state(state: int, lease: int, by_user: bool) -> State:
    """Return where a job stands, in the words that users know.

    One that is held is ``suspended`` if a user did that; else it waits after a failure.
    """
    if state == JobState.HELD and by_user:
        return "suspended"
    if state in (JobState.ACTIVE, JobState.HELD):
        return "running" if lease != NOBODY else "queued"
    return _ENDED[state]


def listed(live: Live, tenants: BoolArray, state: State | None, after: int) -> IntArray:
    """Return the numbers of jobs in a state, of those tenants, from the ``after``-th on."""
    jobs = live.scheduler.jobs
    after = min(after, len(jobs))
    found = jobs.ints[after : len(jobs)]
    wanted = np.ones(len(found), dtype=bool)
    if not tenants.all():
        wanted &= tenants[jobs.profiles.tenant[found[:, PROFILE]]]
    held = found[:, STATE] == JobState.HELD
    by_user = np.zeros(len(found), dtype=bool)
    for one in held.nonzero()[0].tolist():
        by_user[one] = jobs.ids[after + one] in live.suspended_jobs
    if state in ("queued", "running"):
        wanted &= (found[:, STATE] == JobState.ACTIVE) | (held & ~by_user)
        wanted &= (found[:, LEASE] != NOBODY) == (state == "running")
    elif state == "suspended":
        wanted &= held & by_user
    elif state is not None:
        wanted &= found[:, STATE] == next(key for key, name in _ENDED.items() if name == state)
    numbers: IntArray = after + wanted.nonzero()[0]
    return numbers


def node_views(live: Live) -> list[NodeView]:
    """Return the nodes but for those removed, with how many of their devices are held."""
    scheduler, cluster = live.scheduler, live.scheduler.cluster
    held = (scheduler.leases.holder >= 0).any(axis=0)
    found = []
    for index, node in enumerate(cluster.nodes):
        if index in scheduler.nodes.removed:
            continue
        mine = cluster.node_of == index
        counts: dict[str, int] = {}
        for kind in node.devices:
            counts[kind] = counts.get(kind, 0) + 1
        found.append(
            NodeView(
                id=node.id,
                rack=node.rack,
                up=index not in scheduler.nodes.down,
                cordoned=index in scheduler.nodes.cordoned,
                drained=node.id in live.nodes.drained,
                devices=counts,
                busy=int(np.count_nonzero(held & mine)),
                taken=int(np.count_nonzero(scheduler.nodes.taken & mine)),
            )
        )
    return found


def share_views(live: Live) -> list[ShareView]:
    """Return what every tenant is entitled to now, holds now, and has had."""
    scheduler = live.scheduler
    jobs, leases = scheduler.jobs, scheduler.leases
    count, tenants = len(jobs), jobs.tenants
    if not count:
        return []
    profiles, profile = jobs.profiles, jobs.ints[:count, PROFILE]
    owner = profiles.tenant[profile]
    slots = leases.open
    device_s = leases.device_s(live.clock.now()).sum(axis=1)
    had = np.bincount(owner, device_s, len(tenants))
    held = np.bincount(owner[leases.job[slots]], leases.sizes(slots), len(tenants))
    waiting = np.bincount(owner[jobs.active], minlength=len(tenants))
    part = np.where(waiting > 0, entitled(tenants), 0.0)
    part = part / max(float(part.sum()), 1e-12)
    devices = max(int(scheduler.nodes.lasting.sum()), 1)
    return [
        ShareView(
            tenant=tenant.id,
            weight=tenant.weight,
            entitled=float(part[i]),
            received=float(held[i]) / devices,
            device_hours=float(had[i]) / 3600.0,
            jobs=int(waiting[i]),
        )
        for i, tenant in enumerate(tenants)
    ]
