"""Routes of speeds: believed and measured ones, imports into the table, forgotten ones."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from fairlead.core.queries import JobState
from fairlead.live.driver import Live
from fairlead.model.speeds.believed import BelievedSpeed, with_spread
from fairlead.model.speeds.estimates import declared_speeds
from fairlead.model.speeds.interval import interval_80
from fairlead.model.speeds.key import WorkloadScope, plain_workload, scope_of
from fairlead.model.speeds.measured import Selection
from fairlead.model.submission.admission import requirements
from fairlead.server.access.authorization import (
    CurrentPrincipal,
    LiveDependency,
    find_visible_job,
)
from fairlead.server.api.speed_messages import (
    MeasuredPairView,
    MeasuredSpeedView,
    SpeedsForgotten,
    SpeedsImport,
    SpeedsImported,
    SpeedView,
)
from fairlead.server.config.scheduling import imported_scheduling_config

speeds = APIRouter(prefix="/v1", tags=["speeds"])

_Name = Annotated[str, Query(max_length=128)]
_Gang = Annotated[int, Query(ge=1, le=100_000)]
_Gangs = Annotated[tuple[_Gang, ...], Query(max_length=16)]


@speeds.get("/speeds")
async def show_speeds(
    live: LiveDependency, principal: CurrentPrincipal, gang: _Gangs = ()
) -> list[SpeedView]:
    """Return the believed speeds of the active jobs' workloads, each with its source.

    ``gang``: numbers of devices, one or more, instead of those that the jobs need; shows the
    scaling of each workload. Spread gangs are listed where they are believed to differ.
    Tenants see those of the jobs that they can see.
    """
    queries, now = live.queries, live.clock.now()
    alike: dict[tuple[object, ...], int] = {}
    for number in queries.select_jobs((JobState.ACTIVE, JobState.HELD)).tolist():
        job = queries.job(number)
        if principal.can_see(job.tenant):
            name = job.workload or number
            alike.setdefault((name, job.tenant, *requirements(job), declared_speeds(job)), number)
    # Jobs of one workload may declare different speeds; once measured, they have the same one.
    believed = {
        (speed.key, speed.steps_per_s, speed.declared_steps_per_s): speed
        for number in alike.values()
        for speed in _placed_speeds(live, number, gang)
    }
    return [_speed_view(speed, now) for speed in believed.values()]


@speeds.get("/jobs/{job_id}/speeds")
async def job_speeds(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal
) -> list[SpeedView]:
    """Return the believed speeds of a job that has not ended, by accelerator."""
    number = find_visible_job(live, principal, job_id)
    if live.queries.has_ended(number):
        return []
    now = live.clock.now()
    return [_speed_view(speed, now) for speed in _placed_speeds(live, number)]


def _placed_speeds(live: Live, number: int, gangs: Sequence[int] = ()) -> list[BelievedSpeed]:
    """Return the believed speeds of a job, also of spread gangs where these differ."""
    beliefs, measured = live.scheduler.beliefs, live.scheduler.measured_speeds.by_key
    return with_spread(beliefs, measured, live.queries.job_speeds(number, gangs))


def _speed_view(speed: BelievedSpeed, now: float) -> SpeedView:
    key = speed.key
    scope = scope_of(key.workload) or WorkloadScope("", key.workload)
    low, high = None, None
    if speed.doubt is not None:
        low, high = interval_80(speed.steps_per_s, speed.doubt)
    return SpeedView(
        workload=scope.workload,
        tenant=scope.tenant or None,
        job=scope.job,
        gang=key.gang,
        accelerator=key.accelerator,
        placement=key.placement,
        steps_per_s=speed.steps_per_s,
        source=speed.source,
        age_s=None if speed.measured_at is None else max(now - speed.measured_at, 0.0),
        low=low,
        high=high,
        planned_steps_per_s=speed.planned_steps_per_s,
        declared_steps_per_s=speed.declared_steps_per_s,
    )


@speeds.get("/speeds/measured")
async def measured_speeds(
    live: LiveDependency, principal: CurrentPrincipal
) -> list[MeasuredSpeedView]:
    """Return all measured speeds, also of jobs that have ended, the oldest first.

    Tenants see their own.
    """
    now, table = live.clock.now(), live.scheduler.configured_beliefs
    views = []
    for key, measured in live.scheduler.measured_speeds.by_key.items():
        scope = scope_of(key.workload)
        if scope is None or not principal.can_see(scope.tenant):
            continue
        plain = key._replace(workload=plain_workload(key.workload))
        listed = table.listed_speed(plain.workload, key.gang, key.accelerator)
        if key.placement == "spread":
            listed = table.steps_per_s.get(plain, listed)
        views.append(
            MeasuredSpeedView(
                workload=scope.workload,
                tenant=scope.tenant,
                job=scope.job,
                gang=key.gang,
                accelerator=key.accelerator,
                placement=key.placement,
                steps_per_s=measured.steps_per_s,
                age_s=max(now - measured.at, 0.0),
                table_steps_per_s=listed,
            )
        )
    return views


@speeds.get("/speeds/pairs")
async def measured_pairs(
    live: LiveDependency, principal: CurrentPrincipal
) -> list[MeasuredPairView]:
    """Return the speeds that packed jobs have measured beside each other, the oldest first.

    Policies with the option packed pack a pair if its speeds, each relative to the job alone,
    sum to more than 1. Tenants see the speeds of their own jobs.
    """
    now, hidden = live.clock.now(), WorkloadScope("", "")
    views = []
    for key, measured in live.scheduler.measured_speeds.pairs.items():
        scope, partner = scope_of(key.workload), scope_of(key.partner or "")
        if scope is None or partner is None or not principal.can_see(scope.tenant):
            continue
        shown = partner if principal.can_see(partner.tenant) else hidden
        views.append(
            MeasuredPairView(
                workload=scope.workload,
                tenant=scope.tenant,
                partner=shown.workload,
                partner_tenant=shown.tenant,
                gang=key.gang,
                accelerator=key.accelerator,
                steps_per_s=measured.steps_per_s,
                alone_steps_per_s=live.queries.believed_speed(
                    key._replace(partner=None)
                ).steps_per_s,
                age_s=max(now - measured.at, 0.0),
            )
        )
    return views


@speeds.put("/speeds/table")
async def import_speeds(
    new: SpeedsImport, live: LiveDependency, principal: CurrentPrincipal
) -> SpeedsImported:
    """Add speeds to the server's table, in a round that starts now; for admins.

    Measured speeds stay and count more than the table. Refused, without effect, if a job that has
    not ended could never run.
    """
    principal.require("admin")
    before = live.policy.config
    count, config = await asyncio.to_thread(
        imported_scheduling_config, before, new.speeds, replaces=new.replace
    )
    await live.policy.request(before, config, principal.actor)
    return SpeedsImported(imported=count, speeds=live.policy.config.speeds_label)


@speeds.delete("/speeds/measured")
async def forget_speeds(
    live: LiveDependency,
    principal: CurrentPrincipal,
    tenant: _Name = "",
    workload: _Name = "",
    accelerator: _Name = "",
) -> SpeedsForgotten:
    """Forget measured speeds, all or those of the given names; jobs measure again. For admins."""
    principal.require("admin")
    selection = Selection(tenant, workload, accelerator)
    return SpeedsForgotten(forgotten=await live.speeds.forget(selection, principal.actor))
