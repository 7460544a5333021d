"""How far each job of a trace is in the virtual cluster, and how it goes on."""

import heapq
from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job
from fairlead.model.lease import SLOTS


class JobProgress:
    """Columns over jobs, most of them as of its present lease.

    When partners come or go, what was done so far is settled: ``held_from`` and ``works_from``
    then are the time of that. They are columns, not one table, because single entries of a
    one-dimensional array are read and written several times faster than rows of a matrix.
    """

    def __init__(self, jobs: Sequence[Job], leave_s: FloatArray, slots: int) -> None:
        n = len(jobs)
        self.total: FloatArray = np.array([job.total_steps for job in jobs], dtype=np.float64)
        """steps to make"""
        self.leave_s = leave_s
        """seconds from its last step until its devices are free"""
        self.done = np.zeros(n)
        """steps made as of ``works_from``"""
        self.rate = np.zeros(n)
        """steps per second"""
        self.held_from = np.zeros(n)
        self.works_from = np.zeros(n)
        """when progress began, after restoring"""
        self.finish_at = np.full(n, np.inf)
        """when it will have made all its steps and left"""
        self.size = np.zeros(n, dtype=np.int64)
        """devices held"""
        self.portion = np.zeros(n)
        """devices held, one shared by n jobs counting 1/n"""
        self.first = np.full(n, -1, dtype=np.int64)
        """the first of its devices, kept after the lease; -1 before the first start"""
        self.entry = np.zeros(n, dtype=np.int64)
        """where its first device's accelerator stands in a flat table of jobs × accelerators"""
        self.lease = np.full(n, -1, dtype=np.int64)
        """-1 for none"""
        self.until = 0.0
        """when the leases given or renewed last end"""
        self._job_in = np.full(slots, -1, dtype=np.int64)
        """lease slot → job"""
        self._finishing: list[tuple[float, int, int]] = []
        """(when, job, lease) of jobs that finish before their lease ends; some are stale"""

    def hold(self, job: IntArray, lease: IntArray) -> None:
        """Enter the leases under which jobs go on."""
        slot = lease & (SLOTS - 1)
        try:
            self._job_in[slot] = job
        except IndexError:  # there were never so many leases at a time
            more = np.full(int(slot.max()) + 1, -1)
            self._job_in = np.concatenate([self._job_in, more])
            self._job_in[slot] = job
        self.lease[job] = lease

    def jobs_of(self, lease: IntArray) -> IntArray:
        """leases → job that has it, or had it last before the slot was used again."""
        job: IntArray = self._job_in[lease & (SLOTS - 1)]
        return job

    def running(self) -> IntArray:
        """Return the jobs that hold a lease."""
        return (self.lease >= 0).nonzero()[0]

    def made(self, job: IntArray, at: float) -> FloatArray:
        """Return the steps that running jobs have made."""
        worked = np.maximum(at - self.works_from[job], 0.0)
        return np.minimum(self.done[job] + worked * self.rate[job], self.total[job])

    def time_left(self, job: IntArray) -> FloatArray:
        """Return jobs → seconds until it is done and has left, infinite if it makes no steps."""
        time = np.full(len(job), np.inf)
        rate = self.rate[job]
        np.divide(self.total[job] - self.done[job], rate, out=time, where=rate > 0)
        return time + self.leave_s[job]

    def expect(self, job: IntArray, until: float) -> None:
        """Note which of these running jobs finish until then."""
        finish_at = self.finish_at[job]
        if not len(job) or finish_at[finish_at.argmin()] > until:
            return
        for i in (finish_at <= until).nonzero()[0].tolist():
            number = int(job[i])
            entry = (float(finish_at[i]), number, int(self.lease[number]))
            heapq.heappush(self._finishing, entry)

    def next_finish_at(self) -> float:
        """Return when the next job finishes, infinite if none does under its present lease."""
        heap = self._finishing
        while heap:
            when, job, lease = heap[0]
            if self.lease[job] == lease and self.finish_at[job] == when:
                return when
            heapq.heappop(heap)
        return np.inf

    def pop_next_finish(self) -> tuple[int, int]:
        """Return the job that finishes next with its lease, and expect it no longer."""
        _, job, lease = heapq.heappop(self._finishing)
        return job, lease
