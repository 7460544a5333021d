"""Routes that explain decisions: server info, explanations, the current instance, advice."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import structlog
from fastapi import APIRouter

from fairlead.core.queries import BelievedSpeed, JobState
from fairlead.files import format_instance
from fairlead.insight.advice import advise
from fairlead.insight.explain.explain import JobSpeed, explain
from fairlead.insight.explain.starvation import devices_now, starvation_causes
from fairlead.insight.explain.text import paragraphs
from fairlead.live.driver import Live
from fairlead.live.planning.left_out import without
from fairlead.mechanisms.base import HasRounds, RealisesPolicy
from fairlead.model.capabilities import capabilities_of
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, ProtocolError, SolveError, UsageError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.interval import interval_80
from fairlead.model.speeds.key import WorkloadScope, scope_of
from fairlead.model.submission.admission import requirements
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    find_visible_job,
)
from fairlead.server.api import schemas as msg
from fairlead.server.api.views import LEFT_OUT
from fairlead.version import __version__

log = structlog.get_logger("fairlead.server")
insights = APIRouter(prefix="/v1", tags=["insight"])


@insights.get("/about")
async def about(server: ContextDependency, principal: CurrentPrincipal) -> msg.AboutView:
    """Show version, policy and cluster of the server."""
    del principal
    live = server.live
    mechanism, config = live.scheduler.mechanism, live.policy.config
    return msg.AboutView(
        version=__version__,
        policy=config.policy,
        mechanism=config.mechanism_label,
        divides_among_tenants=capabilities_of(mechanism).divides_among_tenants,
        round_s=mechanism.round_s if isinstance(mechanism, HasRounds) else None,
        cluster=live.scheduler.nodes.permanent_by_name,
        now=live.clock.now(),
        start_s=live.overheads.start_s,
        end_s=live.overheads.end_s,
    )


@insights.get("/jobs/{job_id}/explain")
async def explain_job(
    job_id: str, server: ContextDependency, principal: CurrentPrincipal
) -> msg.AnyJson:
    """Explain a job's speed under the current policy, and name changes that would raise it."""
    live = server.live
    number = find_visible_job(live, principal, job_id)
    if live.queries.job_state(number) != JobState.ACTIVE:
        reason = "ended, suspended or in retry backoff"
        if waits_for := live.ends.dependencies.unended(job_id):
            reason = f"it waits for {', '.join(waits_for)}"
        raise ProtocolError(f"job {job_id!r} is not being scheduled: {reason}")
    if live.queries.is_left_out(number):
        raise ProtocolError(f"job {job_id!r} is not being scheduled: {LEFT_OUT}")
    mechanism, policy = live.scheduler.mechanism, live.policy.config.policy
    snap = _snapshot(live)
    believed = {
        speed.key.accelerator: JobSpeed(speed.steps_per_s, speed.source, speed.doubt)
        for speed in live.queries.job_speeds(number)
    }
    if not isinstance(mechanism, RealisesPolicy):
        row = int(snap.job.searchsorted(number))
        held = devices_now(snap)
        causes = [cause.why for cause in starvation_causes(snap, row, held, principal.can_see)]
        waits = f"; job {job_id!r} waits: {'; '.join(causes)}" if causes else ""
        raise ProtocolError(
            f"{policy or 'the mechanism'} computes no shares, so it has no prices to explain"
            f"{waits}"
        )

    def explanation() -> dict[str, Any]:
        try:
            result = explain(
                snap,
                mechanism.policy,
                job_id,
                name=policy,
                can_see=principal.can_see,
                believed=believed,
            )
        except (SolveError, InputError, UsageError) as error:
            raise ProtocolError(f"job {job_id!r} cannot be explained now: {error}") from None
        except (Exception, SystemExit) as error:  # of a policy of another package
            log.error("explanation.failed", job=job_id, error=repr(error))
            problem = f"the policy failed with {type(error).__name__}; see the server's log"
            raise ProtocolError(f"job {job_id!r} cannot be explained now: {problem}") from error
        return {**result.as_dict(), "text": paragraphs(result)}

    async with server.explaining:
        return await asyncio.to_thread(explanation)


@insights.get("/speeds")
async def speeds(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.SpeedView]:
    """Return the believed speeds of the active jobs' workloads, each with its source.

    Tenants see those of the jobs that they can see.
    """
    queries, now = live.queries, live.clock.now()
    alike: dict[tuple[object, ...], int] = {}
    for number in queries.select_jobs((JobState.ACTIVE, JobState.HELD)).tolist():
        job = queries.job(number)
        if principal.can_see(job.tenant):
            alike.setdefault((job.workload or number, job.tenant, *requirements(job)), number)
    believed = {
        speed.key: speed for number in alike.values() for speed in queries.job_speeds(number)
    }
    return [_speed_view(speed, now) for speed in believed.values()]


@insights.get("/jobs/{job_id}/speeds")
async def job_speeds(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal
) -> list[msg.SpeedView]:
    """Return the believed speeds of a job that has not ended, by accelerator."""
    number = find_visible_job(live, principal, job_id)
    if live.queries.has_ended(number):
        return []
    now = live.clock.now()
    return [_speed_view(speed, now) for speed in live.queries.job_speeds(number)]


def _speed_view(speed: BelievedSpeed, now: float) -> msg.SpeedView:
    key = speed.key
    scope = scope_of(key.workload) or WorkloadScope("", key.workload)
    low, high = None, None
    if speed.doubt is not None:
        low, high = interval_80(speed.steps_per_s, speed.doubt)
    return msg.SpeedView(
        workload=scope.workload,
        tenant=scope.tenant or None,
        job=scope.job,
        gang=key.gang,
        accelerator=key.accelerator,
        steps_per_s=speed.steps_per_s,
        source=speed.source,
        age_s=None if speed.measured_at is None else max(now - speed.measured_at, 0.0),
        low=low,
        high=high,
    )


@insights.get("/instance")
async def instance(live: LiveDependency, principal: CurrentPrincipal) -> msg.AnyJson:
    """Return the current jobs and devices as an instance, which `fairlead audit` reads."""
    principal.require("admin", "viewer")
    snap = _snapshot(live)
    if not len(snap.usable):
        raise ProtocolError("no node is up")
    document: msg.AnyJson = json.loads(format_instance(_instance_of(snap)))
    return document


@insights.get("/advice")
async def advice(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.AnyJson]:
    """Return the placement of running jobs, and the order and placement of queued ones."""
    principal.require("admin", "viewer")
    mechanism = live.scheduler.mechanism
    if not isinstance(mechanism, RealisesPolicy):
        raise ProtocolError("the mechanism computes no shares, so it has no order to show")
    entries = await asyncio.to_thread(advise, _snapshot(live), mechanism.policy)
    return [asdict(entry) for entry in entries]


def _snapshot(live: Live) -> Snapshot:
    """Return the current state without the jobs that the last plan left out."""
    at = live.clock.now()
    return without(live.scheduler.snapshot(at, at, pins=False), live.scheduler.left_out)


def _instance_of(snap: Snapshot) -> Instance:
    """Return a snapshot as an instance, without jobs that cannot run on the nodes that are up."""
    accelerators, speed = snap.cluster.accelerators, snap.speed
    able = ((speed > 0) & (snap.gang_on <= snap.capacity)).any(axis=1)
    gangs = np.broadcast_to(snap.gang_on, speed.shape)
    tenants, workload = snap.tenants, snap.profiles.workload
    jobs = tuple(
        InstanceJob(
            id=snap.ids[int(snap.job[row])],
            speeds=dict(zip(accelerators, speed[row].tolist(), strict=True)),
            workload=workload[int(snap.profile[row])],
            tenant=tenants[int(snap.tenant[row])].id,
            gang=int(snap.gang[row]),
            gangs=dict(zip(accelerators, gangs[row].tolist(), strict=True)),
            weight=float(snap.weight[row]),
            steps_left=float(snap.steps_left[row]),
            elapsed_s=max(float(snap.elapsed_s[row]), 0.0),
            isolated_elapsed_s=float(snap.isolated_elapsed_s[row]),
            deadline_s=_remaining_s(float(snap.deadline_at[row]) - snap.at),
            priority=int(snap.precedence[row]),
        )
        for row in np.flatnonzero(able).tolist()
    )
    counts = dict(zip(accelerators, snap.capacity.tolist(), strict=True))
    totals = snap.cluster.count_by_name()
    whole = {name for name, count in totals.items() if counts[name] == count}
    cluster = Cluster.of(counts, details=snap.cluster.details)
    return Instance(
        cluster, jobs, tuple(_without_unavailable_quota(tenant, whole) for tenant in tenants)
    )


def _without_unavailable_quota(tenant: Tenant, whole: Collection[str]) -> Tenant:
    """Return a tenant without quotas of accelerators that are partly down."""
    return replace(
        tenant,
        guarantee={name: count for name, count in tenant.guarantee.items() if name in whole},
        limit={name: count for name, count in tenant.limit.items() if name in whole},
    )


def _remaining_s(seconds: float) -> float | None:
    """Return the time to a deadline, at least 1 ms; None without one."""
    return None if np.isinf(seconds) else max(seconds, 1e-3)
