"""Rounds in which jobs of one device take turns, applied to the tables without events."""

from typing import Any, NamedTuple

import numpy as np

from fairlead.core.handlers.repeated_rounds import may_skip_events
from fairlead.core.jobs import FIRST_TIME_COLUMN, SAVED, STEPS
from fairlead.core.scheduler_state import SchedulerState
from fairlead.mechanisms._tickets import turn_run as t
from fairlead.mechanisms._tickets.turn_run import TurnRun
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.commands import Launch, Renew
from fairlead.model.lease import SLOT_LIMIT, Placements
from fairlead.model.plan import ABSENT


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


def may_run_rounds(state: SchedulerState[Any]) -> bool:
    """Return whether every lease so far was of one device, for a job that needs just one."""
    return (
        not state.leases.gangs
        and state.jobs.profiles.min_gang is None
        and not state.capabilities.reads_restarts
        and state.jobs.numbers.shape[1] - FIRST_TIME_COLUMN <= t.MAX_ACCELERATORS
    )


def turn_run(state: SchedulerState[Any]) -> TurnRun:
    """Return the rows of the active jobs with the columns that the scheduler's tables have."""
    jobs, leases = state.jobs, state.leases
    rows = jobs.numbers.take(jobs.active, axis=0)
    width = rows.shape[1] - FIRST_TIME_COLUMN
    run = TurnRun.of(len(rows), state.cluster.accelerator_of, width)
    run.times[t.RECEIVED] = rows[:, FIRST_TIME_COLUMN:]
    run.numbers[t.SAVED], run.numbers[t.STEPS] = rows[:, SAVED], rows[:, STEPS]
    run.numbers[t.MEASURED_AT] = np.nan
    lease = run.ints[t.LEASE] = jobs.lease[jobs.active]
    # The last slot is never used: the row of a job without a lease has its values.
    slot = np.where(lease >= 0, lease & (SLOT_LIMIT - 1), -1)
    run.numbers[t.COUNTED_AT] = leases.counted_at[slot]
    run.ints[t.DEVICE] = leases.first[slot]
    free, room = leases.free_slots, np.zeros(len(leases), dtype=np.int64)
    run.free = np.concatenate([np.array(free, dtype=np.int64), room])
    run.counts[t.N_FREE], run.counts[t.NEXT_EPOCH] = len(free), leases.next_epoch
    return run


def apply_rounds(state: SchedulerState[Any], run: TurnRun) -> None:
    """Bring the tables to the state after the rounds of a run."""
    jobs, leases, active = state.jobs, state.leases, state.jobs.active
    state.version += int(run.counts[t.ROUNDS])
    state.planned_from, state.planned_epoch = state.changes, int(run.counts[t.PLANNED_EPOCH])
    state.round_end_at = float(run.clock[t.AT])
    rows = jobs.numbers.take(active, axis=0)
    rows[:, FIRST_TIME_COLUMN:] = run.times[t.RECEIVED]
    rows[:, SAVED], rows[:, STEPS] = run.numbers[t.SAVED], run.numbers[t.STEPS]
    jobs.numbers[active] = rows
    measured = (~np.isnan(run.numbers[t.MEASURED_AT])).nonzero()[0]
    if len(measured):
        report = (t.MEASURED_RATE, t.UTILIZATION, t.MEMORY)
        columns = run.ints[t.MEASURED_LEASE], *(run.numbers[column] for column in report)
        reports = np.column_stack([run.numbers[t.MEASURED_AT], *columns])
        jobs.store_measurements(active[measured], reports[measured])
    held = (run.ints[t.LEASE] >= 0).nonzero()[0]
    lease, device = run.ints[t.LEASE][held], run.ints[t.DEVICE][held]
    slot, accelerator = lease & (SLOT_LIMIT - 1), run.accelerator_of[device]
    jobs.lease[active], jobs.on[active] = run.ints[t.LEASE], ABSENT
    jobs.on[active[held]] = accelerator
    leases.lease[:] = -1
    leases.lease[slot], leases.job[slot], leases.first[slot] = lease, active[held], device
    leases.accelerator[slot], leases.counted_at[slot] = (
        accelerator,
        run.numbers[t.COUNTED_AT][held],
    )
    leases.holder[0] = -1
    leases.holder[0, device] = slot
    leases.free_slots = run.free[: int(run.counts[t.N_FREE])].tolist()
    leases.n_held, leases.next_epoch = len(held), int(run.counts[t.NEXT_EPOCH])
