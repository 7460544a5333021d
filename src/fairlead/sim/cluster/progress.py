"""Progress of the jobs of a trace in the virtual cluster."""

import heapq
from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job
from fairlead.model.lease import SLOT_LIMIT


class JobProgress:
    """Columns over jobs; most describe the current lease.

    When a job's speed changes, its progress so far is credited and ``held_from`` and
    ``progress_from`` move to that time. Separate columns, because single entries of a
    one-dimensional array are read and written several times faster than rows of a matrix.
    """

    def __init__(self, jobs: Sequence[Job], leave_s: FloatArray, slots: int) -> None:
        n = len(jobs)
        self.total: FloatArray = np.array([job.total_steps for job in jobs], dtype=np.float64)
        """steps to make"""
        self.leave_s = leave_s
        """seconds between the last step and free devices"""
        self.done = np.zeros(n)
        """steps made as of ``progress_from``"""
        self.rate = np.zeros(n)
        """steps per second"""
        self.held_from = np.zeros(n)
        """start of the uncredited device time"""
        self.progress_from = np.zeros(n)
        """start of progress, after restoring"""
        self.finish_at = np.full(n, np.inf)
        """time at which all steps are made and the devices are free"""
        self.size = np.zeros(n, dtype=np.int64)
        """devices held"""
        self.portion = np.zeros(n)
        """devices held; a device shared by n jobs counts 1/n"""
        self.first = np.full(n, -1, dtype=np.int64)
        """first device, kept after the lease; -1 before the first start"""
        self.prepared = np.full(n, -1, dtype=np.int64)
        """device on which a process waits for its lease, -1 for none"""
        self.entry = np.zeros(n, dtype=np.int64)
        """index of the first device's accelerator in the flattened table of jobs × accelerators"""
        self.lease = np.full(n, -1, dtype=np.int64)
        """-1 for none"""
        self.until = 0.0
        """expiry of the leases granted or renewed last"""
        self._job_in = np.full(slots, -1, dtype=np.int64)
        """lease slot → job"""
        self._finishing: list[tuple[float, int, int]] = []
        """heap of (time, job, lease): completions before the lease ends; some are stale"""

    def set_leases(self, job: IntArray, lease: IntArray) -> None:
        """Set the current leases of jobs."""
        slot = lease & (SLOT_LIMIT - 1)
        try:
            self._job_in[slot] = job
        except IndexError:  # more concurrent leases than ever before
            more = np.full(int(slot.max()) + 1, -1)
            self._job_in = np.concatenate([self._job_in, more])
            self._job_in[slot] = job
        self.lease[job] = lease

    def jobs_of(self, lease: IntArray) -> IntArray:
        """Return leases → job that holds it, or held it last if its slot is not reused."""
        job: IntArray = self._job_in[lease & (SLOT_LIMIT - 1)]
        return job

    def running(self) -> IntArray:
        """Return the jobs that hold a lease."""
        return (self.lease >= 0).nonzero()[0]

    def starting(self, at: float, applied_at: float) -> IntArray:
        """Return the leases that train later than ``at``, or too briefly until ``applied_at``.

        Too briefly means for less time than their start took.
        """
        job = self.running()
        begun = self.progress_from[job]
        brief = (begun > at) | (applied_at - begun < begun - self.held_from[job])
        starting: IntArray = np.sort(self.lease[job[brief]])
        return starting

    def steps_at(self, job: IntArray, at: float) -> FloatArray:
        """Return the steps that running jobs have made by then."""
        worked = np.maximum(at - self.progress_from[job], 0.0)
        return np.minimum(self.done[job] + worked * self.rate[job], self.total[job])

    def time_left(self, job: IntArray) -> FloatArray:
        """Return jobs → seconds until its devices are free; infinite if it makes no steps."""
        time = np.full(len(job), np.inf)
        rate = self.rate[job]
        np.divide(self.total[job] - self.done[job], rate, out=time, where=rate > 0)
        return time + self.leave_s[job]

    def schedule_finish(self, job: IntArray, until: float) -> None:
        """Schedule the completion of those running jobs that finish by ``until``."""
        finish_at = self.finish_at[job]
        if not len(job) or finish_at[finish_at.argmin()] > until:
            return
        for i in (finish_at <= until).nonzero()[0].tolist():
            number = int(job[i])
            entry = (float(finish_at[i]), number, int(self.lease[number]))
            heapq.heappush(self._finishing, entry)

    def next_finish_at(self) -> float:
        """Return the time of the next completion; infinite if none is scheduled."""
        heap = self._finishing
        while heap:
            when, job, lease = heap[0]
            if self.lease[job] == lease and self.finish_at[job] == when:
                return when
            heapq.heappop(heap)
        return np.inf

    def pop_next_finish(self) -> tuple[int, int]:
        """Remove the next completion from the schedule; return its job and lease."""
        _, job, lease = heapq.heappop(self._finishing)
        return job, lease
