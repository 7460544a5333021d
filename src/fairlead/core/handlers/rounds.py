"""Handlers of planning events: request a plan, receive it, and apply it when the round ends."""

import math
from typing import Any

from fairlead.core.handlers.trials import update_trials
from fairlead.core.launches import launch_ready, plan_or_refill, preempt, refill, renew
from fairlead.core.plan_fitting import fit_late_plan
from fairlead.core.scheduler_state import SchedulerState
from fairlead.mechanisms.base import HasRounds
from fairlead.model import events as ev
from fairlead.model.commands import Command, ComputePlan, SetTimer
from fairlead.model.lease import NO_PLACEMENTS, SLOT_LIMIT
from fairlead.model.plan import Plan

_PIN_CHECK_S = 60.0
"""seconds after which a mechanism without rounds plans again beside pinned leases"""


def plan_due(state: SchedulerState[Any], event: ev.PlanDue) -> list[Command]:
    """Request the next plan, unless one is pending or no job is to be scheduled."""
    if state.round_end_at is None:
        state.pending = None  # its round has ended
    elif state.pending is not None:
        return []  # the next plan is requested once the pending one applies
    if len(state.jobs.active) == len(state.nodes.pinned_jobs(state.leases)[0]):
        # Only jobs that stay in place are active; they run until they end. A pin may end before.
        state.round_end_at = None
        again = [SetTimer("PlanDue", event.at + _round_s(state))] if state.leases.pinned else []
        return [*renew(state, math.inf), SetTimer("RoundEnd", None), *again]
    if state.usage.due(event.at):
        used = state.snapshot_builder.used(event.at, state.usage)
        state.changes += state.usage.count(event.at, used, state.jobs.tenants)
    if state.beliefs.trials is not None:
        update_trials(state, _round_s(state))
    state.version += 1
    state.planning = True
    state.planned_from = state.changes
    state.planned_epoch = state.leases.next_epoch
    starts_at = max(event.at, state.round_end_at or event.at)
    return [ComputePlan(state.version, state.snapshot(event.at, starts_at), state.memory)]


def _round_s(state: SchedulerState[Any]) -> float:
    mechanism = state.mechanism
    return mechanism.round_s if isinstance(mechanism, HasRounds) else _PIN_CHECK_S


def plan_ready(state: SchedulerState[Any], event: ev.PlanReady) -> list[Command]:
    """Apply the requested plan, or keep it until the round ends; ignore an outdated plan."""
    if event.version != state.version or not state.planning:
        return []
    state.planning = False
    state.memory = event.memory
    state.left_out = event.left_out
    if state.round_end_at is None or event.at >= state.round_end_at:
        return _apply(state, event.plan, event.at)
    state.pending = event.plan
    return renew(state, event.plan.until, but=event.plan.stop)


def round_end(state: SchedulerState[Any], event: ev.RoundEnd) -> list[Command]:
    """Apply the pending plan; without one, keep running leases until a late plan arrives."""
    plan, state.pending = state.pending, None
    # After an outage the plan's own round may have ended, too: jobs would move for nothing.
    if plan is not None and event.at < plan.until:
        return _apply(state, plan, event.at)
    if state.planning:
        # Interim plan: leases continue until the late plan arrives and is applied at once.
        return renew(state, math.inf)
    state.round_end_at = None
    return plan_or_refill(state, event.at)


def _apply(state: SchedulerState[Any], plan: Plan, at: float) -> list[Command]:
    state.round_end_at = plan.until
    stop, state.waiting = plan.stop, plan.start
    launched = state.leases.next_epoch != state.planned_epoch
    changed = state.changes != state.planned_from
    if launched or changed or state.leases.pinned:
        epoch = state.planned_epoch
        stop, state.waiting = fit_late_plan(plan, epoch, state.jobs, state.leases, state.nodes)
    slots = stop & (SLOT_LIMIT - 1)
    limits, planned = state.limits(), len(state.waiting)
    if limits:
        slots, may = limits.enforce(slots, NO_PLACEMENTS, state.waiting)
        state.waiting = state.waiting.where(may)
    cut = len(state.waiting) < planned
    return [
        *preempt(state, slots),
        *renew(state, plan.until),
        *launch_ready(state, at),
        *(refill(state, at) if cut else ()),
        SetTimer("PlanDue", max(at, plan.wake_at - state.plan_lead_s)),
        SetTimer("RoundEnd", plan.until),
        # Jobs submitted since the plan was requested are not in it; they may use idle devices.
        *(plan_or_refill(state, at) if changed else ()),
    ]
