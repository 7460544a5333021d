"""A virtual cluster: carries out the scheduler's commands in virtual time."""

import heapq

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import LeasesEnded, Outcome, Progress
from fairlead.model.lease import SLOTS
from fairlead.sim.record import FIRST_STEPS, Record
from fairlead.sim.truth import Truth

_PACE = TOTAL, DONE, RATE, HELD_FROM, WORKS_FROM, FINISH_AT, DEVICES, FIRST, MOVES = range(9)
"""columns: steps to make, steps made as of WORKS_FROM, steps per second, when the lease began,
when progress began (after restoring), when it will finish, devices held, the first of them (-1
before the first start), how often that has changed"""


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
        self._pace = np.zeros((n, len(_PACE)))
        """jobs × what decides its progress, side by side: one operation reads or writes a job"""
        self._pace[:, TOTAL] = [job.total_steps for job in record.jobs]
        self._pace[:, FINISH_AT] = np.inf
        self._kind = np.zeros(n, dtype=np.int64)
        self._pace[:, FIRST] = -1.0
        self._lease = np.full(n, -1, dtype=np.int64)
        self._job_in = np.full(2 * len(cluster.node_of), -1, dtype=np.int64)
        """lease slot → job"""
        self._early = n
        """jobs that have not made their first steps"""
        self._finishing: list[tuple[float, int, int]] = []
        """(when, job, lease) of jobs that finish before their lease ends; some are stale"""

    def next_finish_at(self) -> float:
        """Return when the next job finishes, infinite if none does under its present lease."""
        heap = self._finishing
        while heap and self._lease[heap[0][1]] != heap[0][2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else np.inf

    def finish(self, at: float) -> tuple[int, LeasesEnded]:
        """End the lease of the job that finishes now; return its number with the event."""
        _, job, lease = heapq.heappop(self._finishing)
        self._record.finished_at[job] = at
        return job, self._end(np.array([lease]), at, "finished")

    def launch(self, command: Launch, at: float) -> None:
        """Start jobs on their devices."""
        units = command.on
        job, first = units.job, units.device[units.start[:-1]]
        slot = command.lease & (SLOTS - 1)
        if int(slot.max()) >= len(self._job_in):
            self._job_in = np.concatenate([self._job_in, np.full(int(slot.max()) + 1, -1)])
        self._job_in[slot] = job
        self._lease[job] = command.lease
        self._kind[job] = self._cluster.accelerator_of[first]
        pace = self._pace.take(job, axis=0)
        pace[:, RATE] = self._truth.speed(units)
        pace[:, DEVICES] = units.size
        pace[:, HELD_FROM] = at
        self._note_start(job, pace, first, at)
        time = (pace[:, TOTAL] - pace[:, DONE]) / pace[:, RATE]
        pace[:, FINISH_AT] = finish_at = pace[:, WORKS_FROM] + time
        self._pace[job] = pace
        self._note_finishing(job, finish_at, command.until)

    def _note_start(self, job: IntArray, pace: FloatArray, first: IntArray, at: float) -> None:
        before = pace[:, FIRST]
        fresh = before < 0
        pace[:, MOVES] += before != first
        pace[:, WORKS_FROM] = at + self._restore_cost_s
        if np.count_nonzero(fresh):
            self._record.started_at[job[fresh]] = at
            pace[fresh, WORKS_FROM] = at
            pace[fresh, MOVES] = 0.0
        pace[:, FIRST] = first

    def renew(self, command: Renew) -> None:
        """Let leases go on."""
        job = self._job_in[command.lease & (SLOTS - 1)]
        self._note_finishing(job, self._pace[job, FINISH_AT], command.until)

    def _note_finishing(self, job: IntArray, finish_at: FloatArray, until: float) -> None:
        for i in (finish_at <= until).nonzero()[0].tolist():
            number = int(job[i])
            entry = (float(finish_at[i]), number, int(self._lease[number]))
            heapq.heappush(self._finishing, entry)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases that are still open; they have left, or were lost."""
        self._record.preemptions[self._job_in[lease & (SLOTS - 1)]] += 1
        return self._end(lease, at, outcome)

    def _end(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        job = self._job_in[lease & (SLOTS - 1)]
        pace = self._pace.take(job, axis=0)
        if outcome == "finished":
            after = pace[:, TOTAL]
        else:
            worked = np.maximum(at - pace[:, WORKS_FROM], 0.0)
            if outcome == "lost":
                worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
            after = pace[:, DONE] + worked * pace[:, RATE]
        if self._early:
            self._note_first_steps(job, pace, after)
        self._credit(job, pace, at)
        pace[:, DONE] = after
        pace[:, FINISH_AT] = np.inf
        self._pace[job] = pace
        self._lease[job] = -1
        return LeasesEnded(at, lease, after.copy(), outcome)

    def _credit(self, job: IntArray, pace: FloatArray, at: float) -> None:
        record, start = self._record, pace[:, HELD_FROM]
        flat = record.device_s.reshape(-1)
        flat[job * record.device_s.shape[1] + self._kind[job]] += (at - start) * pace[:, DEVICES]
        if record.intervals is not None:
            devices = pace[:, DEVICES].astype(np.int64)
            first = pace[:, FIRST].astype(np.int64)
            record.intervals.add(job, first, devices, start.copy(), at)

    def _note_first_steps(self, job: IntArray, pace: FloatArray, after: FloatArray) -> None:
        goal = np.minimum(FIRST_STEPS, pace[:, TOTAL])
        crossed = (after >= goal) & np.isnan(self._record.first_steps_at[job])
        count = np.count_nonzero(crossed)
        if count:
            self._early -= int(count)
            mine = pace[crossed]
            time = (goal[crossed] - mine[:, DONE]) / mine[:, RATE]
            self._record.first_steps_at[job[crossed]] = mine[:, WORKS_FROM] + time

    def close(self) -> None:
        """Enter what was counted beside the progress into the record."""
        self._record.migrations[:] = self._pace[:, MOVES]

    def progress(self, at: float) -> Progress | None:
        """Return how far the running jobs are."""
        job = (self._lease >= 0).nonzero()[0]
        if not len(job):
            return None
        pace = self._pace[job]
        worked = np.maximum(at - pace[:, WORKS_FROM], 0.0)
        steps = np.minimum(pace[:, DONE] + worked * pace[:, RATE], pace[:, TOTAL])
        return Progress(at, self._lease[job], steps)
