"""Steps of a job's concurrent copies, which add up to the job's steps."""

import numpy as np

from fairlead.core.jobs import TOTAL, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import FloatArray, IntArray


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
    for number in np.unique(leases.job[slots]).tolist():
        own = sum(leases.own_steps.get(slot, 0.0) for slot in leases.of_job(number).tolist())
        total = np.array([min(jobs.saved_steps[number] + own, jobs.numbers[number, TOTAL])])
        jobs.advance(np.array([number]), total, capacity)
