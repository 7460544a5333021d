"""Routes that look into decisions: why a job has its speed, and the problem as it stands."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import APIRouter, Request

from fairlead import __version__
from fairlead.core.jobs import JobState
from fairlead.files import format_instance
from fairlead.insight.advice import advise
from fairlead.insight.explain.explain import explain
from fairlead.insight.explain.text import paragraphs
from fairlead.live.driver import Live
from fairlead.mechanisms.factory import divides_among_tenants
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, ProtocolError, SolveError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot
from fairlead.server.access.authorization import LiveDependency, Who, find
from fairlead.server.api import schemas as msg

insights = APIRouter(prefix="/v1", tags=["insight"])


@dataclass(frozen=True, slots=True)
class About:
    """How the server was started, as far as users should know."""

    policy: str = ""
    mechanism: str | None = None
    explaining: asyncio.Lock = field(default_factory=asyncio.Lock)
    """explanations solve many times over: one at a time leaves the planner its core"""


@insights.get("/about")
async def about(request: Request, live: LiveDependency, who: Who) -> msg.AboutView:
    """Show which version and policy run here, on what."""
    del who
    known: About = request.app.state.about
    mechanism = live.scheduler.mechanism
    return msg.AboutView(
        version=__version__,
        policy=known.policy,
        mechanism=known.mechanism or type(mechanism).__name__.lower(),
        divides_among_tenants=divides_among_tenants(mechanism),
        round_s=float(getattr(mechanism, "round_s", 0.0)) or None,
        cluster=live.scheduler.nodes.permanent_by_name,
        now=live.clock.now(),
        start_s=live.costs.start_s,
        end_s=live.costs.end_s,
    )


@insights.get("/jobs/{job_id}/explain")
async def explain_job(
    job_id: str, request: Request, live: LiveDependency, who: Who
) -> msg.AnyJson:
    """Say why a job has its speed under the policy that runs, and what would raise it."""
    number, jobs = find(live, who, job_id), live.scheduler.jobs
    if jobs.state[number] != JobState.ACTIVE:
        raise ProtocolError(
            f"job {job_id!r} is not scheduled now: it has ended, is suspended or waits after a"
            " failure"
        )
    known: About = request.app.state.about
    policy = getattr(live.scheduler.mechanism, "policy", None)
    if policy is None:
        raise ProtocolError(
            f"{known.policy or 'the mechanism'} decides without shares, so there are no prices to"
            " explain by"
        )
    snap = _snapshot(live)

    def find_out() -> dict[str, Any]:
        try:
            found = explain(snap, policy, job_id, name=known.policy)
        except (SolveError, InputError) as error:
            raise ProtocolError(f"it cannot be explained now: {error}") from None
        return {**found.as_dict(), "text": paragraphs(found)}

    async with known.explaining:
        return await asyncio.to_thread(find_out)


@insights.get("/instance")
async def instance(live: LiveDependency, who: Who) -> msg.AnyJson:
    """Return the jobs and devices as they stand, in the form that `fairlead audit` reads."""
    who.require("admin", "viewer")
    snap = _snapshot(live)
    if not len(snap.usable):
        raise ProtocolError("no node is up, so there is nothing to share out")
    found: msg.AnyJson = json.loads(format_instance(_instance_of(snap)))
    return found


@insights.get("/advice")
async def advice(live: LiveDependency, who: Who) -> list[msg.AnyJson]:
    """Say where jobs run and in which order the waiting ones should start, and where."""
    who.require("admin", "viewer")
    policy = getattr(live.scheduler.mechanism, "policy", None)
    if policy is None:
        raise ProtocolError("the mechanism decides without shares, so there is no order to show")
    found = await asyncio.to_thread(advise, _snapshot(live), policy)
    return [asdict(one) for one in found]


def _snapshot(live: Live) -> Snapshot:
    at = live.clock.now()
    return live.scheduler.snapshot(at, at)


def _instance_of(snap: Snapshot) -> Instance:
    """Return a snapshot as an instance; jobs that nothing which is up can run are left out."""
    kinds, speed = snap.cluster.accelerators, snap.speed
    able = ((speed > 0) & (snap.gang_on <= snap.capacity)).any(axis=1)
    gangs = np.broadcast_to(snap.gang_on, speed.shape)
    tenants, workload = snap.tenants, snap.profiles.workload
    jobs = tuple(
        InstanceJob(
            id=snap.ids[int(snap.job[row])],
            speeds=dict(zip(kinds, speed[row].tolist(), strict=True)),
            workload=workload[int(snap.profile[row])],
            tenant=tenants[int(snap.tenant[row])].id,
            gang=int(snap.gang[row]),
            gangs=dict(zip(kinds, gangs[row].tolist(), strict=True)),
            weight=float(snap.weight[row]),
            steps_left=float(snap.steps_left[row]),
            elapsed_s=max(float(snap.elapsed_s[row]), 0.0),
            isolated_elapsed_s=float(snap.isolated_elapsed_s[row]),
            deadline_s=_remaining_s(float(snap.deadline_at[row]) - snap.at),
            priority=int(snap.priority[row]),
        )
        for row in np.flatnonzero(able).tolist()
    )
    counts = dict(zip(kinds, snap.capacity.tolist(), strict=True))
    whole = {kind for kind, count in snap.cluster.count_by_name().items() if counts[kind] == count}
    cluster = Cluster.of(counts, details=snap.cluster.details)
    return Instance(
        cluster, jobs, tuple(_without_unavailable_quota(tenant, whole) for tenant in tenants)
    )


def _without_unavailable_quota(tenant: Tenant, whole: Collection[str]) -> Tenant:
    """Return a tenant without quotas of what is partly down: they cannot all be kept then."""
    return replace(
        tenant,
        guarantee={kind: count for kind, count in tenant.guarantee.items() if kind in whole},
        limit={kind: count for kind, count in tenant.limit.items() if kind in whole},
    )


def _remaining_s(seconds: float) -> float | None:
    """Return the time to a deadline; one that has passed is as near as can be said."""
    return None if np.isinf(seconds) else max(seconds, 1e-3)
