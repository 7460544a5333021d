"""A virtual cluster: carries out the scheduler's commands in virtual time."""

import heapq

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import LeasesEnded, Outcome, Progress
from fairlead.model.lease import SLOTS, Leases
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
        self._job_in = np.full(2 * len(cluster.node_of), -1, dtype=np.int64)
        """lease slot → job"""
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
        leases = command.leases
        job, first = leases.job, leases.device[leases.start[:-1]]
        slot = leases.lease % SLOTS
        if int(slot.max()) >= len(self._job_in):
            self._job_in = np.concatenate([self._job_in, np.full(int(slot.max()) + 1, -1)])
        self._job_in[slot] = job
        self._lease[job] = leases.lease
        self._note_start(leases, first, at)
        rate = self._truth.speed(leases)
        self._rate[job] = rate
        self._kind[job] = self._cluster.accelerator_of[first]
        self._devices[job] = leases.start[1:] - leases.start[:-1]
        self._held_from[job] = at
        self._finish_at[job] = self._works_from[job] + (self._total[job] - self._done[job]) / rate
        self._note_finishing(job, command.until)

    def _note_start(self, leases: Leases, first: IntArray, at: float) -> None:
        job = leases.job
        before = self._first_device[job]
        self._first_device[job] = first
        fresh = before < 0
        self._works_from[job] = np.where(fresh, at, at + self._restore_cost_s)
        self._record.migrations[job] += ~fresh & (before != first)
        self._record.started_at[job[fresh]] = at

    def renew(self, command: Renew) -> None:
        """Let leases go on."""
        self._note_finishing(self._job_in[command.lease % SLOTS], command.until)

    def _note_finishing(self, job: IntArray, until: float) -> None:
        finish_at = self._finish_at[job]
        for i in (finish_at <= until).nonzero()[0].tolist():
            number = int(job[i])
            entry = (float(finish_at[i]), number, int(self._lease[number]))
            heapq.heappush(self._finishing, entry)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases that are still open; they have left, or were lost."""
        self._record.preemptions[self._job_in[lease % SLOTS]] += 1
        return self._end(lease, at, outcome)

    def _end(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        job = self._job_in[lease % SLOTS]
        if outcome == "finished":
            after = self._total[job]
        else:
            worked = np.maximum(at - self._works_from[job], 0.0)
            if outcome == "lost":
                worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
            after = self._done[job] + worked * self._rate[job]
        self._note_first_steps(job, after)
        self._done[job] = after
        self._credit(job, at)
        self._finish_at[job] = np.inf
        self._lease[job] = -1
        return LeasesEnded(at, lease, after, outcome)

    def _credit(self, job: IntArray, at: float) -> None:
        record, devices = self._record, self._devices[job]
        start = self._held_from[job]
        record.device_s[job, self._kind[job]] += (at - start) * devices
        if record.intervals is not None:
            record.intervals.add(job, self._first_device[job], devices, start, at)

    def _note_first_steps(self, job: IntArray, after: FloatArray) -> None:
        unknown = np.isnan(self._record.first_steps_at[job])
        if not unknown.any():
            return
        goal = np.minimum(FIRST_STEPS, self._total[job])
        crossed = unknown & (after >= goal)
        j = job[crossed]
        steps = goal[crossed] - self._done[j]
        self._record.first_steps_at[j] = self._works_from[j] + steps / self._rate[j]

    def progress(self, at: float) -> Progress | None:
        """Return how far the running jobs are."""
        job = (self._lease >= 0).nonzero()[0]
        if not len(job):
            return None
        worked = np.maximum(at - self._works_from[job], 0.0)
        steps = np.minimum(self._done[job] + worked * self._rate[job], self._total[job])
        return Progress(at, self._lease[job], steps)
