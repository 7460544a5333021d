"""Rounds in which jobs of one device take turns, applied to the tables without events."""

from typing import Any, NamedTuple

import numpy as np

from fairlead.core.handlers.repeated_rounds import may_skip_events
from fairlead.core.jobs import FIRST_TIME_COLUMN
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.commands import Launch, Renew
from fairlead.model.lease import Placements


def may_take_turns(state: SchedulerState[Any]) -> bool:
    """Return whether the next round depends on nothing but the mechanism and the time received.

    Jobs are alone on one device each, and ended leases free it at once.
    """
    reads_progress = state.capabilities.reads_progress
    return may_skip_events(state) and not state.leases.packed and not reads_progress


def devices_by_row(state: SchedulerState[Any]) -> IntArray:
    """Return active jobs → the device that each holds, -1 for none."""
    active, holder = state.jobs.active, state.leases.holder[0]
    device: IntArray = np.full(len(active), -1)
    held = (holder >= 0).nonzero()[0]
    device[active.searchsorted(state.leases.job[holder[held]])] = held
    return device


def received_by_row(state: SchedulerState[Any], at: float) -> FloatArray:
    """Return active jobs × accelerators → seconds of holding devices by then."""
    jobs, leases = state.jobs, state.leases
    rows, slots = jobs.numbers.take(jobs.active, axis=0), leases.open
    leases.credit(slots, jobs.active.searchsorted(leases.job[slots]), at, rows)
    return rows[:, FIRST_TIME_COLUMN:]


class AppliedTurn(NamedTuple):
    """The commands of a round that has been applied, in the order in which they take effect."""

    after_release: Launch | None
    renewed: Renew | None
    at_once: Launch | None
    """jobs on devices that were free before; their leases are numbered first"""


def apply_turn(
    state: SchedulerState[Any],
    at: float,
    until: float,
    ending: IntArray,
    steps: FloatArray,
    units: Placements,
) -> AppliedTurn:
    """End leases and start jobs as a plan, the ends of its leases and its launches would do.

    ``ending`` are jobs, and ``steps`` those in their checkpoints.
    """
    jobs, leases = state.jobs, state.leases
    state.version += 1
    state.planned_from, state.planned_epoch = state.changes, leases.next_epoch
    state.round_end_at = until
    slots = leases.slots(jobs.lease[ending])
    stays = leases.lease >= 0
    stays[slots] = False
    renewed = leases.lease[stays]
    holder = leases.holder[0, units.device]
    waits = (holder >= 0) & ~stays[holder]
    at_once = units.where(~waits) if len(slots) else units
    first = _launch(state, at_once, at, until)
    if len(slots):
        leases.credit(slots, ending, at, jobs.numbers)
        leases.close(slots)
        saved = np.maximum(jobs.saved_steps[ending], steps)
        jobs.saved_steps[ending] = jobs.steps[ending] = saved
        units = units if first is None else units.where(waits)
    later = _launch(state, units, at, until) if len(slots) else None
    return AppliedTurn(later, Renew(renewed, until) if len(renewed) else None, first)


def _launch(
    state: SchedulerState[Any], units: Placements, at: float, until: float
) -> Launch | None:
    if not len(units):
        return None
    return Launch(state.leases.start(units, at), units, until, exclusive=True)
