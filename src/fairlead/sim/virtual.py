"""A virtual cluster: carries out the scheduler's commands in virtual time."""

import heapq

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import LeasesEnded, Outcome, Progress
from fairlead.sim.record import FIRST_STEPS, Record
from fairlead.sim.truth import Truth


class VirtualCluster:
    """Jobs that progress at their true speed while they hold devices.

    A job that starts again after it was stopped first spends ``restore_cost_s`` on its devices
    without progress. A job that leaves or finishes has checkpointed; one that is lost falls
    back to its last checkpoint, of which it makes one every ``checkpoint_s``.
    """

    def __init__(
        self,
        cluster: Cluster,
        truth: Truth,
        record: Record,
        *,
        restore_cost_s: float,
        checkpoint_s: float,
    ) -> None:
        n = len(record.jobs)
        self._cluster = cluster
        self._truth = truth
        self._record = record
        self._restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        self._total = np.array([job.total_steps for job in record.jobs])
        self._done = np.zeros(n)
        self._rate = np.zeros(n)
        self._held_from = np.zeros(n)
        self._works_from = np.zeros(n)
        self._finish_at = np.full(n, np.inf)
        self._kind = np.zeros(n, dtype=np.int64)
        self._devices = np.zeros(n, dtype=np.int64)
        self._first_device = np.full(n, -1, dtype=np.int64)
        self._lease = np.full(n, -1, dtype=np.int64)
        self._job_of: dict[int, int] = {}
        self._finishing: list[tuple[float, int, int]] = []
        """(when, job, lease) of jobs that finish before their lease ends; some are stale"""

    def next_finish_at(self) -> float:
        """Return when the next job finishes, infinite if none does under its present lease."""
        heap = self._finishing
        while heap and self._lease[heap[0][1]] != heap[0][2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else np.inf

    def finish(self, at: float) -> LeasesEnded:
        """End the lease of the job that finishes now."""
        _, job, lease = heapq.heappop(self._finishing)
        self._record.finished_at[job] = at
        return self._end(np.array([lease]), at, "finished")

    def launch(self, command: Launch, at: float) -> None:
        """Start units on their devices."""
        units = command.units
        rate = self._truth.speed(units)
        kind = self._cluster.accelerator_of[units.device[units.start[:-1]]]
        first = units.device[units.start[:-1]]
        for column in range(units.members.shape[1]):
            here = units.members[:, column] >= 0
            self._start(
                units.members[here, column],
                command.lease[here, column],
                rate[here, column],
                kind[here],
                units.size[here],
                first[here],
                at,
            )
        self._note_finishing(units.members[units.members >= 0], command.until)

    def _start(
        self,
        job: IntArray,
        lease: IntArray,
        rate: FloatArray,
        kind: IntArray,
        size: IntArray,
        first: IntArray,
        at: float,
    ) -> None:
        record = self._record
        before = self._first_device[job]
        fresh = before < 0
        record.started_at[job[fresh]] = at
        record.migrations[job] += ~fresh & (before != first)
        self._lease[job] = lease
        self._job_of.update(zip(lease.tolist(), job.tolist(), strict=True))
        self._rate[job] = rate
        self._kind[job] = kind
        self._devices[job] = size
        self._first_device[job] = first
        self._held_from[job] = at
        works_from = np.where(fresh, at, at + self._restore_cost_s)
        self._works_from[job] = works_from
        self._finish_at[job] = works_from + (self._total[job] - self._done[job]) / rate

    def renew(self, command: Renew) -> None:
        """Let leases go on."""
        job = self._jobs(command.lease)
        self._note_finishing(job, command.until)

    def _note_finishing(self, job: IntArray, until: float) -> None:
        ending = job[self._finish_at[job] <= until]
        for number in ending.tolist():
            entry = (float(self._finish_at[number]), number, int(self._lease[number]))
            heapq.heappush(self._finishing, entry)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases that are still open; they have left, or were lost."""
        job = self._jobs(lease)
        self._record.preemptions[job] += 1
        return self._end(lease, at, outcome)

    def _end(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        job = self._jobs(lease)
        worked = np.maximum(at - self._works_from[job], 0.0)
        if outcome == "lost":
            worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
        done = self._done[job]
        rate = self._rate[job]
        after = self._total[job] if outcome == "finished" else done + worked * rate
        self._note_first_steps(job, done, after, rate)
        self._done[job] = after
        self._credit(job, at)
        self._finish_at[job] = np.inf
        self._rate[job] = 0.0
        self._lease[job] = -1
        for number in lease.tolist():
            del self._job_of[number]
        return LeasesEnded(at, lease, after, outcome)

    def _credit(self, job: IntArray, at: float) -> None:
        record, devices = self._record, self._devices[job]
        start = self._held_from[job]
        record.device_s[job, self._kind[job]] += (at - start) * devices
        if record.intervals is not None:
            record.intervals.add(job, self._first_device[job], devices, start, np.full(len(job), at))

    def _note_first_steps(
        self, job: IntArray, done: FloatArray, after: FloatArray, rate: FloatArray
    ) -> None:
        goal = np.minimum(FIRST_STEPS, self._total[job])
        crossed = (done < goal) & (after >= goal)
        if crossed.any():
            j = job[crossed]
            when = self._works_from[j] + (goal[crossed] - done[crossed]) / rate[crossed]
            self._record.first_steps_at[j] = when

    def progress(self, at: float) -> Progress | None:
        """Return how far the running jobs are."""
        job = np.flatnonzero(self._lease >= 0)
        if not len(job):
            return None
        worked = np.maximum(at - self._works_from[job], 0.0)
        steps = np.minimum(self._done[job] + worked * self._rate[job], self._total[job])
        return Progress(at, self._lease[job], steps)

    def _jobs(self, lease: IntArray) -> IntArray:
        known = self._job_of
        return np.array([known[number] for number in lease.tolist()], dtype=np.int64)
