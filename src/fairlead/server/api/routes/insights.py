"""Routes that explain decisions: server info, explanations, the current instance, advice."""

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response

from fairlead.core.queries import JobState
from fairlead.files import format_instance
from fairlead.insight.advice import advise
from fairlead.insight.explain.explain import JobSpeed, explain
from fairlead.insight.explain.starvation import CanSee
from fairlead.insight.explain.text import paragraphs
from fairlead.insight.explain.without_prices import explain_without_prices
from fairlead.live.driver import Live
from fairlead.mechanisms.base import HasRounds, RealisesPolicy, ResizesGangs
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import InputError, ProtocolError, UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    find_visible_job,
)
from fairlead.server.api import schemas as msg
from fairlead.server.api.live_instance import current_snapshot, instance_of
from fairlead.server.api.solving import solve
from fairlead.server.api.views import LEFT_OUT, job_partners, public_state
from fairlead.sim.report.summary import join_with_and
from fairlead.version import __version__

insights = APIRouter(prefix="/v1", tags=["insight"])
_UNSCHEDULED = {
    "finished": "it has finished",
    "failed": "it has failed",
    "cancelled": "it was cancelled",
    "suspended": "it is suspended: `fairlead resume` resumes it",
}


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
        usd_per_hour={
            name: detail.usd_per_hour
            for name, detail in live.scheduler.cluster.details.items()
            if detail.usd_per_hour is not None
        },
    )


@insights.get("/jobs/{job_id}/explain")
async def explain_job(
    job_id: str, server: ContextDependency, principal: CurrentPrincipal
) -> msg.AnyJson:
    """Explain a job's speed under the current policy, and name changes that would raise it."""
    live = server.live
    number = find_visible_job(live, principal, job_id)
    if live.queries.job_state(number) != JobState.ACTIVE:
        state = public_state(live, live.queries.job_status(number))
        reason = _UNSCHEDULED.get(state, "it is in retry backoff after a failure")
        if waits_for := live.ends.dependencies.unended(job_id):
            reason = f"it waits for {', '.join(waits_for)}"
        raise ProtocolError(f"job {job_id!r} is not being scheduled: {reason}")
    if live.queries.is_left_out(number):
        raise ProtocolError(f"job {job_id!r} is not being scheduled: {LEFT_OUT}")
    mechanism, policy = live.scheduler.mechanism, live.policy.config.policy
    believed = {
        speed.key.accelerator: JobSpeed(
            speed.steps_per_s, speed.source, speed.doubt, speed.planned_steps_per_s
        )
        for speed in live.queries.job_speeds(number)
    }
    if not isinstance(mechanism, RealisesPolicy):
        snap = current_snapshot(live)
        if isinstance(mechanism, ResizesGangs):
            reason = mechanism.gang_reason(snap, live.scheduler.memory, number)
            if reason:
                return {"policy": policy, "who": job_id, "kind": "job", "text": [reason]}
        row = int(snap.job.searchsorted(number))
        name = policy or "the mechanism"
        text = explain_without_prices(snap, row, name, principal.can_see)
        text += _sharing(live, number, principal.can_see)
        return {"policy": policy, "who": job_id, "kind": "job", "text": text}

    sharing = _sharing(live, number, principal.can_see)
    total = live.specs[job_id].steps
    failure = f"job {job_id!r} cannot be explained now"

    def explanation(snap: Snapshot) -> dict[str, Any]:
        if number not in snap.job:
            raise ProtocolError(f"{failure}: it ended or was suspended a moment ago")
        try:
            result = explain(
                snap,
                mechanism.policy,
                job_id,
                name=policy,
                can_see=principal.can_see,
                believed=believed,
                steps_left=total and max(total - float(snap.steps[snap.job == number][0]), 0.0),
            )
        except (InputError, UsageError) as error:
            raise ProtocolError(f"{failure}: {error}") from None
        return {**result.as_dict(), "text": [*paragraphs(result), *sharing]}

    return await solve(server, ("explain", job_id, principal.view), failure, explanation)


def _sharing(live: Live, number: int, can_see: CanSee) -> list[str]:
    """Return a paragraph on the jobs that share a job's devices; none if it holds its own."""
    partners = job_partners(live, live.queries.job_status(number))
    if not partners:
        return []
    named = [job_id for job_id in partners if can_see(live.specs[job_id].tenant)]
    others = len(partners) - len(named)
    if others:
        named.append("a job of another tenant" if others == 1 else f"{others} jobs of others")
    return [f"It shares its devices with {join_with_and(named)} now."]


@insights.get("/instance", response_model=msg.AnyJson)
async def instance(live: LiveDependency, principal: CurrentPrincipal) -> Response:
    """Return the current jobs and devices as an instance, which `fairlead audit` reads."""
    principal.require("admin", "viewer")
    snap = current_snapshot(live)
    if not len(snap.usable):
        raise ProtocolError("no node is up")
    text = await asyncio.to_thread(lambda: format_instance(instance_of(snap)))
    return Response(text, media_type="application/json")


@insights.get("/advice")
async def advice(server: ContextDependency, principal: CurrentPrincipal) -> list[msg.AnyJson]:
    """Return the placement of running jobs, and the order and placement of queued ones."""
    principal.require("admin", "viewer")
    mechanism = server.live.scheduler.mechanism
    if not isinstance(mechanism, RealisesPolicy):
        raise ProtocolError("the mechanism computes no shares, so it has no order to show")

    def entries(snap: Snapshot) -> list[msg.AnyJson]:
        return [asdict(entry) for entry in advise(snap, mechanism.policy)]

    return await solve(server, "advice", "there is no advice now", entries)
