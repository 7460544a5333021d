"""Commands that start, renew and preempt leases, and the plan requests that follow a change."""

from typing import Any

import numpy as np

from fairlead.core.copies import limit_copies
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model.arrays import NO_INTS, IntArray
from fairlead.model.commands import Command, Launch, Preempt, Renew, SetTimer
from fairlead.model.lease import NO_PLACEMENTS, Placements


def plan_or_refill(state: SchedulerState[Any], at: float) -> list[Command]:
    """Request a plan if no round is running; otherwise give idle devices to queued jobs."""
    if state.round_end_at is None:
        return [SetTimer("PlanDue", at)] if len(state.jobs.active) else []
    if not len(state.leases) and not len(state.waiting):
        # The last lease has ended, and with it the round.
        state.round_end_at = None
        return [SetTimer("PlanDue", at), SetTimer("RoundEnd", None)]
    return refill(state, at)


def refill(state: SchedulerState[Any], at: float) -> list[Command]:
    """Give idle devices to queued jobs if the mechanism supports it."""
    staying = len(state.leases) - state.leases.leaving_count
    if state.refills is None or staying >= len(state.jobs.active):
        return []
    limits = state.limits()
    hidden = limits.jobs_at_limit(state.waiting) if limits else NO_INTS
    if state.left_out:
        hidden = np.union1d(hidden, state.unstartable_jobs())
    commands: list[Command] = []
    while len(idle := state.idle_devices()):
        more = state.refilled(at, hidden, idle)
        if state.leases.leaving_count:
            # Two leases of one job at a time would be two writers of one checkpoint, and what
            # starts beside copies would lack their steps.
            more = more.where(~state.leases.hold_open(more.job))
        may = limits.enforce(NO_INTS, state.waiting, more)[1] if limits else None
        refused = NO_INTS if may is None else more.job[~may]
        if may is not None:
            more = more.where(may)
        if len(more):
            commands.append(_launch(state, more, at))
        if not len(refused):
            break
        hidden = np.union1d(hidden, refused)
    return commands


def launch_ready(state: SchedulerState[Any], at: float) -> list[Command]:
    """Launch the waiting placements whose devices are free and whose job's last lease ended."""
    units, leases = state.waiting, state.leases
    if not len(units):
        return []
    state.waiting = NO_PLACEMENTS
    if leases.leaving_count:
        blocked = leases.waits_for_release(units)
        # Two leases of one job at a time would be two writers of one checkpoint.
        own = state.jobs.lease[units.job] >= 0
        if not leases.simple:
            # Copies start from the merged checkpoint of the previous round's copies.
            own &= units.copy == 0
            own |= np.isin(units.job, leases.job[leases.leaving])
        blocked |= own
        count = np.count_nonzero(blocked)
        if count == len(units):
            state.waiting = units
            return []
        if count:
            state.waiting = units.where(blocked)
            units = units.where(~blocked)
    units = limit_copies(state.jobs, leases, units, state.waiting)
    return [_launch(state, units, at)] if len(units) else []


def _launch(state: SchedulerState[Any], units: Placements, at: float) -> Launch:
    until = state.round_end_at if state.round_end_at is not None else at
    lease = state.leases.start(units, at)
    return Launch(lease, units, until, exclusive=not state.leases.packed)


def renew(state: SchedulerState[Any], until: float, *, but: IntArray = NO_INTS) -> list[Command]:
    """Extend every lease that stays, except these."""
    leases = state.leases.lease[state.leases.active_slots]
    if len(but):
        leases = leases[~np.isin(leases, but)]
    return [Renew(leases, until)] if len(leases) else []


def preempt(state: SchedulerState[Any], slots: IntArray) -> list[Command]:
    """Take the devices back from the leases in these slots; skip leases already leaving."""
    if state.leases.leaving_count:
        slots = slots[~state.leases.leaving[slots]]
    if not len(slots):
        return []
    state.leases.mark_leaving(slots)
    return [Preempt(state.leases.lease[slots])]
