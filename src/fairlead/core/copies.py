"""Copies of one job that run at once: the steps each has made add up to the job's."""

import numpy as np

from fairlead.core.jobs import TOTAL, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import FloatArray, IntArray


def record_copy_steps(
    jobs: JobTable, leases: LeaseTable, slots: IntArray, steps: FloatArray, capacity: IntArray
) -> None:
    """Note the steps that running copies have made themselves, and their jobs' in all."""
    for slot, made in zip(slots.tolist(), steps.tolist(), strict=True):
        leases.own_steps[slot] = max(leases.own_steps[slot], made)
    _add_up(jobs, leases, slots, capacity)


def merge_ended_copies(
    jobs: JobTable, leases: LeaseTable, slots: IntArray, steps: FloatArray, capacity: IntArray
) -> None:
    """Keep for their jobs the steps of copies whose leases have ended."""
    for slot, made in zip(slots.tolist(), steps.tolist(), strict=True):
        del leases.own_steps[slot]
        jobs.saved_steps[leases.job[slot]] += made
    _add_up(jobs, leases, slots, capacity)


def made_all_steps(jobs: JobTable, number: int) -> bool:
    """Tell whether the steps that a forked job's copies have kept are all that it has to make."""
    return bool(jobs.saved_steps[number] >= jobs.numbers[number, TOTAL] * (1.0 - 1e-9))


def _add_up(jobs: JobTable, leases: LeaseTable, slots: IntArray, capacity: IntArray) -> None:
    for number in np.unique(leases.job[slots]).tolist():
        own = sum(leases.own_steps.get(slot, 0.0) for slot in leases.of_job(number).tolist())
        in_all = np.array([min(jobs.saved_steps[number] + own, jobs.numbers[number, TOTAL])])
        jobs.advance(np.array([number]), in_all, capacity)
