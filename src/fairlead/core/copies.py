"""Steps of a job's concurrent copies, which add up to the job's steps."""

import math
from typing import Any

import numpy as np

from fairlead.core.jobs import TOTAL, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model.arrays import FloatArray, IntArray, is_among
from fairlead.model.lease import Placement, Placements

LAST_STEPS = 1
"""steps that a job which declares its copies makes by itself: then its program ends as usual"""


def limit_copies(
    jobs: JobTable, leases: LeaseTable, units: Placements, waiting: Placements
) -> Placements:
    """Return placements whose copies have whole numbers of steps, together at most those left.

    Applies to jobs that declare their copies. A plan knows the steps of its own time only, and
    copies that are still ``waiting`` for devices start later. A job without steps for copies
    starts by itself.
    """
    forked = units.job[units.copy > 0].tolist()
    if all(jobs.jobs[job].max_copies is None for job in forked):
        return units
    limited: list[Placement] = []
    left: dict[int, float] = {}
    scale: dict[int, float] = {}
    for unit in units:
        job = unit.job
        if unit.copy == 0 or jobs.jobs[job].max_copies is None:
            limited.append(unit)
            continue
        is_first = job not in left
        if is_first:
            left[job] = _undivided_steps(jobs, leases, job)
            planned = sum(each.max_steps for each in (*units, *waiting) if each.job == job)
            scale[job] = min(left[job] / planned, 1.0)
        steps = min(math.ceil(unit.max_steps * scale[job]), left[job])
        left[job] -= max(steps, 0)
        if steps > 0:
            limited.append(unit._replace(max_steps=float(steps)))
        elif is_first and not len(leases.of_job(job)):
            limited.append(Placement(job, 0, unit.devices))
    return Placements.of(limited)


def _undivided_steps(jobs: JobTable, leases: LeaseTable, number: int) -> float:
    """Return the steps of a job that neither a checkpoint has nor a running copy is to make."""
    divided = sum(leases.max_steps.get(slot, 0.0) for slot in leases.of_job(number).tolist())
    left = jobs.numbers.item(number, TOTAL) - jobs.saved_steps.item(number)
    return math.floor(left - LAST_STEPS - divided)


def copies_held(leases: LeaseTable, number: int) -> tuple[int, int]:
    """Return the lease of a running job's first copy, and the devices of all of its copies."""
    slots = leases.of_job(number)
    return int(leases.lease[slots].min()), int(leases.sizes(slots).sum())


def shares_of_copies(state: SchedulerState[Any], number: int) -> dict[int, float]:
    """Return copy → share of the steps that a job's running and waiting copies are to make."""
    leases = state.leases
    slots = leases.of_job(number).tolist()
    steps = {int(leases.copy[slot]): leases.max_steps.get(slot, 0.0) for slot in slots}
    steps |= {unit.copy: unit.max_steps for unit in state.waiting if unit.job == number}
    total = sum(steps.values())
    return {copy: steps[copy] / total for copy in sorted(steps)}


def record_copy_steps(
    jobs: JobTable, leases: LeaseTable, slots: IntArray, steps: FloatArray, capacity: IntArray
) -> None:
    """Record the steps of running copies, and the total steps of their jobs."""
    for slot, made in zip(slots.tolist(), steps.tolist(), strict=True):
        leases.own_steps[slot] = max(leases.own_steps[slot], made)
    _add_up(jobs, leases, slots, capacity)


def merge_ended_copies(
    jobs: JobTable, leases: LeaseTable, slots: IntArray, steps: FloatArray, capacity: IntArray
) -> None:
    """Add the steps of copies whose leases have ended to their jobs' checkpointed steps."""
    for slot, made in zip(slots.tolist(), steps.tolist(), strict=True):
        del leases.own_steps[slot]
        jobs.saved_steps[leases.job[slot]] += made
    _add_up(jobs, leases, slots, capacity)


def made_all_steps(jobs: JobTable, number: int) -> bool:
    """Return whether the checkpointed steps of a forked job's copies complete the job."""
    return bool(jobs.saved_steps[number] >= jobs.numbers[number, TOTAL] * (1.0 - 1e-9))


def _add_up(jobs: JobTable, leases: LeaseTable, slots: IntArray, capacity: IntArray) -> None:
    numbers = np.unique(leases.job[slots])
    copies = np.sort(np.fromiter(leases.own_steps, dtype=np.int64))
    copies = copies[is_among(leases.job[copies], numbers)]
    own = np.zeros(len(numbers))
    steps = [leases.own_steps[slot] for slot in copies.tolist()]
    np.add.at(own, numbers.searchsorted(leases.job[copies]), steps)
    total = np.minimum(jobs.saved_steps[numbers] + own, jobs.numbers[numbers, TOTAL])
    jobs.advance(numbers, total, capacity)
