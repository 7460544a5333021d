"""Views of jobs, nodes and shares of a live scheduler."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairlead.core.device_use import accelerators_held, device_use, tenant_holdings
from fairlead.core.queries import JobState, JobStatus
from fairlead.live.copies.reports import reported_progress
from fairlead.live.driver import Live
from fairlead.live.history.exits import failed_rank, log_tail, signal_of
from fairlead.live.job_ends.urls import site_of
from fairlead.live.reconfiguration.packing import chooses_gpus
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.server.api.device_health import health_views
from fairlead.server.api.job_messages import JobView, State
from fairlead.server.api.schemas import NodeView, ShareView

_ENDED: dict[JobState, State] = {
    JobState.FINISHED: "finished",
    JobState.CANCELLED: "cancelled",
    JobState.FAILED: "failed",
}
LEFT_OUT = "left out of planning: plans fail with its numbers: change them or cancel it"
"""message of a job with which plans fail"""
_UNENDED = (JobState.ACTIVE, JobState.HELD)
_MAX_NAMED_JOBS = 5


def job_view(live: Live, number: int) -> JobView:
    """Return the current state of a job."""
    return JobView.model_construct(**job_row(live, number))


async def job_view_with_log(live: Live, number: int) -> JobView:
    """Return the current state of a job with the last lines of its last ended lease."""
    row = job_row(live, number)
    result = live.history.results.of(row["id"])
    if result.exit_lease is not None:
        directory, rank = live.orders.log_dir(row["id"]), failed_rank(result.exit_codes)
        row["log_tail"] = await asyncio.to_thread(log_tail, directory, result.exit_lease, rank)
    return JobView.model_construct(**row)


def job_row(live: Live, number: int) -> dict[str, Any]:
    """Return the current state of a job as the fields of a JobView."""
    status = live.queries.job_status(number)
    job, job_id = status.job, status.id
    spec, counts = live.specs[job_id], live.counters.of(job_id)
    lease = None if status.lease is None else live.leases.get(status.lease)
    steps, steps_per_s = reported_progress(status, live.leases)
    suspicion = live.suspicious_reports.by_job.get(job_id)
    result, now = live.history.results.of(job_id), live.clock.now()
    codes = result.exit_codes
    progresses = lease is not None and lease.has_progressed(status.saved_steps)
    waits_for = live.ends.dependencies.unended(job_id)
    partners = job_partners(live, status)
    return {
        "id": job_id,
        "name": spec.name,
        "tenant": job.tenant,
        "state": public_state(live, status),
        "workload": job.workload,
        "gang": job.gang,
        "min_gang": job.min_gang,
        "max_gang": job.max_gang,
        "weight": job.weight,
        "priority": job.priority,
        "multijob": job.multijob,
        "steps_done": min(steps, float(spec.steps)) if spec.steps else steps,
        "total_steps": spec.steps,
        "accelerator": status.accelerator,
        "devices": status.devices,
        "accelerators_held": accelerators_held(live.scheduler, number),
        "shares_with": [other for other in partners if live.specs[other].tenant == job.tenant],
        "partners": len(partners),
        "accelerators_used": [*counts.accelerators],
        "leases": counts.leases,
        "preemptions": counts.preemptions,
        "failures": counts.failures,
        "after": [*spec.after],
        "after_any": [*spec.after_any],
        "hyperparameters": dict(spec.hyperparameters),
        "start_from": spec.start_from,
        "waits_for": waits_for,
        "time_limit_s": spec.time_limit_s,
        "held_s": live.counters.held_s_until(job_id, status.lease, now),
        "code_snapshot": spec.code_snapshot,
        "code_commit": spec.code_commit,
        "code_dirty": spec.code_dirty,
        "container": spec.container,
        "notify": site_of(spec.notify),
        "preempt": spec.preempt,
        "pinned": lease is not None and live.pins(lease),
        "lost_s": counts.lost_s,
        "submitted_at": job.arrival_at,
        "started_at": counts.started_at,
        "ended_at": counts.ended_at,
        "steps_per_s": steps_per_s,
        "device_hours": live.counters.device_s_until(job_id, status.lease, now) / 3600.0,
        "metrics": {**result.metrics, **(lease.metrics if lease else {})},
        "exit_codes": [*codes],
        "signal": signal_of(codes[failed_rank(codes)]) if codes else None,
        "log_tail": [],
        "suspicious_reports": suspicion.reports if suspicion else 0,
        "suspicion": suspicion.problem if suspicion else "",
        "message": _message(live, number, job_id, waits_for, progresses),
        "command": [*spec.command],
    }


def job_partners(live: Live, status: JobStatus) -> list[str]:
    """Return the jobs of all tenants on a job's devices."""
    if status.lease is None or not live.queries.has_packed:
        return []
    shared = live.queries.shared_devices(status.lease)
    return [] if shared is None else shared.partners


def _message(
    live: Live, number: int, job_id: str, waits_for: Sequence[str], progresses: bool
) -> str:
    if live.queries.is_left_out(number):
        return LEFT_OUT
    if waits_for:
        return f"waits for {', '.join(waits_for[:_MAX_NAMED_JOBS])}"
    # The message of an earlier lease is outdated once this one has made a step; an ended job
    # keeps its message while its last lease leaves.
    outdated = progresses and not live.queries.has_ended(number)
    return "" if outdated else live.messages.get(job_id, "")


def public_state(live: Live, status: JobStatus) -> State:
    """Return the public state of a job.

    A held job is ``suspended`` if a user suspended it; otherwise it is in retry backoff.
    """
    if status.state == JobState.HELD and status.id in live.suspended_jobs:
        return "suspended"
    if status.state in _UNENDED:
        return "queued" if status.lease is None else "running"
    return _ENDED[status.state]


def listed(
    live: Live, tenants: BoolArray, state: State | None, after: int, *, unended: bool = False
) -> IntArray:
    """Return the numbers of these tenants' jobs in a state, from number ``after`` on."""
    select = partial(live.queries.select_jobs, tenants=tenants, after=after)
    if state is None:
        return select(_UNENDED if unended else tuple(JobState))
    if state not in ("queued", "running", "suspended"):
        return select([key for key, name in _ENDED.items() if name == state and not unended])
    held: IntArray = select((JobState.HELD,))
    by_user = [live.queries.job_id(job) in live.suspended_jobs for job in held.tolist()]
    suspended: IntArray = held[np.array(by_user, dtype=bool)]
    if state == "suspended":
        return suspended
    numbers: IntArray = np.setdiff1d(select(_UNENDED, running=state == "running"), suspended)
    return numbers


def node_views(live: Live) -> list[NodeView]:
    """Return all nodes that were not removed, with the number of devices held on each."""
    return [
        NodeView(
            id=status.node.id,
            rack=status.node.rack,
            up=status.up,
            cordoned=status.cordoned,
            drained=status.node.id in live.nodes.drained,
            devices=dict(Counter(status.node.devices)),
            busy=status.busy,
            taken=status.taken - live.nodes.count_faulty(status.node.id),
            health=health_views(live, status.node),
            unread=chooses_gpus(chooser) if (chooser := live.config.device_chooser) else "",
        )
        for status in live.queries.node_statuses()
    ]


def device_rows(live: Live, can_see: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Return the devices of every node, as fields of NodeDevices, with the jobs to be seen."""
    queries = live.queries
    by_node: dict[str, list[dict[str, Any]]] = {}
    for device in device_use(live.scheduler):
        tenants = [queries.job(job).tenant for job in device.jobs]
        seen = [n for n, tenant in zip(device.jobs, tenants, strict=True) if can_see(tenant)]
        by_node.setdefault(device.node, []).append(
            {
                "accelerator": device.accelerator,
                "state": "held" if device.jobs else "taken" if device.taken else "free",
                "tenant": queries.job(seen[0]).tenant if seen else None,
                "jobs": [queries.job_id(job) for job in seen],
            }
        )
    return [{"node": node, "devices": devices} for node, devices in by_node.items()]


def share_views(live: Live) -> list[ShareView]:
    """Return entitled and held shares of every tenant now, and its device hours so far."""
    queries = live.queries
    devices = max(sum(total for total, _ in queries.device_counts().values()), 1)
    return [
        ShareView(
            tenant=status.tenant.id,
            weight=status.tenant.weight,
            entitled=status.entitled,
            received=status.devices / devices,
            device_hours=status.device_s / 3600.0,
            jobs=status.jobs,
            running=holding.running,
            devices=holding.devices,
            speed=holding.speed,
        )
        for status, holding in zip(
            queries.tenant_statuses(live.clock.now()),
            tenant_holdings(live.scheduler),
            strict=True,
        )
    ]
