"""View of the running round: the changes of the pending plan."""

from collections import Counter
from collections.abc import Callable, Iterator

from fairlead.live.driver import Live
from fairlead.model.lease import SLOT_LIMIT
from fairlead.server.api.rounds.messages import Action, PlannedChange, RoundView


def round_view(live: Live, can_see: Callable[[str], bool]) -> RoundView:
    """Return the running round with the planned changes of the jobs to be seen."""
    scheduler = live.scheduler
    ends_at, planned = scheduler.round_end_at, scheduler.pending is not None
    changes = [*_changes(live)]
    seen = [change for change in changes if can_see(change.tenant)]
    requested = ends_at is None or planned or scheduler.planning
    return RoundView(
        ends_at=ends_at,
        plan_at=None if requested or ends_at is None else ends_at - scheduler.plan_lead_s,
        planned=planned,
        changes=seen,
        hidden=len(changes) - len(seen),
    )


def _changes(live: Live) -> Iterator[PlannedChange]:
    """Yield the changes of the pending plan: stops and moves, then starts."""
    plan, leases, queries = live.scheduler.pending, live.scheduler.leases, live.queries
    if plan is None:
        return
    cluster = live.scheduler.cluster
    names, accelerator_of = cluster.accelerators, cluster.accelerator_of
    starts: dict[int, Counter[str]] = {}
    for unit in plan.start:
        devices = accelerator_of[list(unit.devices)].tolist()
        starts.setdefault(unit.job, Counter()).update(names[i] for i in devices)
    stopped = dict.fromkeys(
        leases.job.item(slot)
        for lease, slot in ((lease, lease & (SLOT_LIMIT - 1)) for lease in plan.stop.tolist())
        if leases.lease.item(slot) == lease  # it has not ended since
    )
    for job in stopped | dict.fromkeys(starts):
        if queries.has_ended(job):
            continue
        action: Action = "start" if job not in stopped else "move" if job in starts else "stop"
        yield PlannedChange(
            job=queries.job_id(job),
            tenant=queries.job(job).tenant,
            action=action,
            accelerators=dict(starts.get(job, {})),
        )
