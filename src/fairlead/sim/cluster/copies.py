"""Copies of forked jobs in the virtual cluster; the steps of a job's copies add up."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.commands import Launch
from fairlead.model.events import LeasesEnded
from fairlead.model.lease import Placement
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import FIRST_STEPS, Record


@dataclass(slots=True)
class _RunningCopy:
    """A copy that holds a lease."""

    unit: Placement
    rate: float
    """steps per second"""
    held_from: float
    progress_from: float

    @property
    def done_at(self) -> float:
        """The time at which the copy has made its maximum number of steps."""
        return self.progress_from + self.unit.max_steps / self.rate if self.rate else math.inf

    def steps_at(self, at: float) -> float:
        """Return the steps that the copy has made, capped at its maximum."""
        return min(max(at - self.progress_from, 0.0) * self.rate, self.unit.max_steps)


class CopyLeases:
    """Leases of forked jobs; a job finishes when the steps of all its copies reach its total.

    A copy that has made its maximum steps frees its devices. The steps of a copy are credited
    once, when its lease ends.
    """

    def __init__(
        self,
        true_speeds: TrueSpeeds,
        progress: JobProgress,
        record: Record,
        *,
        restore_cost_s: float,
        checkpoint_s: float,
    ) -> None:
        self._true_speeds = true_speeds
        self._progress = progress
        """for forked jobs: steps of ended leases, and the last device"""
        self._record = record
        self._restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        self._of: dict[int, _RunningCopy] = {}
        """lease → copy"""
        self._leases: dict[int, list[int]] = {}
        """job → leases of its copies"""
        self._next: dict[int, tuple[float, float]] = {}
        """job → time at which its first copy has made its steps, time at which the job finishes"""

    def __len__(self) -> int:
        return len(self._of)

    @property
    def leases(self) -> frozenset[int]:
        """The leases that copies hold."""
        return frozenset(self._of)

    def is_copy(self, lease: IntArray) -> BoolArray:
        """Return leases → whether a copy holds it."""
        return np.array([number in self._of for number in lease.tolist()], dtype=bool)

    def launch(self, command: Launch, at: float) -> None:
        """Start copies."""
        units, job = command.on, command.on.job
        fresh = self._progress.first[job] < 0
        self._record.started_at[job[fresh]] = at
        progress_from = np.where(fresh, at, at + self._restore_cost_s)
        if self._true_speeds.physics_model is not None:
            progress_from += np.where(fresh, 0.0, self._true_speeds.physics_model.merge_s(job))
        self._progress.first[job] = units.first
        rate = self._true_speeds.speed(units, self._true_speeds.entry(units))
        rows = zip(
            command.lease.tolist(), units, rate.tolist(), progress_from.tolist(), strict=True
        )
        for lease, unit, speed, begin in rows:
            self._of[lease] = _RunningCopy(unit, speed, at, begin)
            self._leases.setdefault(unit.job, []).append(lease)
        self._schedule_finish(np.unique(job).tolist())

    def next_at(self) -> float:
        """Return the time at which the next job or copy is done; infinite if none."""
        return min((min(times) for times in self._next.values()), default=math.inf)

    def finish(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End all copies of the job that finishes now, or only the copies that are done."""
        job, leases = self._finished_at(at)
        made = self._end(leases, at)
        if job is not None:
            self._progress.done[job] = self._progress.total[job]
            self._record.finished_at[job] = at
        outcome: LoggedOutcome = "left" if job is None else "finished"
        return job, LeasesEnded(at, np.array(leases, dtype=np.int64), made, outcome)

    def end_leases(self, lease: IntArray, at: float, outcome: LoggedOutcome) -> LeasesEnded:
        """End the leases of copies; they are merged, so no preemption is counted."""
        return LeasesEnded(at, lease, self._end(lease.tolist(), at, outcome), outcome)

    def _finished_at(self, at: float) -> tuple[int | None, list[int]]:
        """Return the job that finishes now (None if only copies do) and the leases that end."""
        for job, (part_at, job_at) in sorted(self._next.items()):
            if job_at <= at:
                return job, list(self._leases[job])
            if part_at <= at:
                leases = self._leases[job]
                return None, [lease for lease in leases if self._of[lease].done_at <= at]
        raise LookupError("no copy finishes now")

    def _end(self, lease: Iterable[int], at: float, outcome: LoggedOutcome = "left") -> FloatArray:
        """End leases; return the steps that each has made and saved.

        A lost copy keeps its last checkpoint, one per ``checkpoint_s``; others save on exit.
        """
        made = []
        affected: dict[int, None] = {}
        for number in lease:
            self._record_first_steps(self._of[number].unit.job, at)
        for number in lease:
            copy = self._of.pop(number)
            job = copy.unit.job
            until = at
            if outcome == "lost":
                worked = max(at - copy.progress_from, 0.0)
                until = copy.progress_from + worked // self._checkpoint_s * self._checkpoint_s
            made.append(copy.steps_at(until))
            self._progress.done[job] += made[-1]
            self._record_interval(copy, at)
            self._credit(copy, at)
            self._leases[job].remove(number)
            affected[job] = None
        self._schedule_finish(affected)
        return np.array(made)

    def credit_running(self, at: float) -> None:
        """Credit jobs with the device time of their running copies."""
        for copy in self._of.values():
            self._credit(copy, at)

    def progress(self, at: float) -> tuple[IntArray, FloatArray]:
        """Return the leases and the steps made under each."""
        made = [copy.steps_at(at) for copy in self._of.values()]
        return np.array(list(self._of), dtype=np.int64), np.array(made)

    def _schedule_finish(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            copies = [self._of[lease] for lease in self._leases[job]]
            if not copies:
                del self._leases[job]
                self._next.pop(job, None)
                continue
            total = self._record.jobs[job].total_steps
            part_at = min(copy.done_at for copy in copies)
            self._next[job] = part_at, self._reaches_at(job, total)

    def _reaches_at(self, job: int, goal: float) -> float:
        """Return the time at which the steps of a job's copies reach ``goal``; infinite if never.

        The sum is a polyline with corners where copies begin or end their progress.
        """
        copies = [self._of[lease] for lease in self._leases[job]]
        enough = goal - max(goal, 1.0) * 1e-9 - float(self._progress.done[job])
        corners = sorted({t for copy in copies for t in (copy.progress_from, copy.done_at)})
        before = 0.0
        for corner, following in zip(corners, [*corners[1:], math.inf], strict=True):
            before = sum(copy.steps_at(corner) for copy in copies)
            if before >= enough:
                return corner
            rate = sum(c.rate for c in copies if c.progress_from <= corner < c.done_at)
            if rate and corner + (enough - before) / rate < following:
                return corner + (enough - before) / rate
        return math.inf

    def _record_first_steps(self, job: int, at: float) -> None:
        record = self._record
        if np.isnan(record.first_steps_at[job]):
            when = self._reaches_at(job, min(FIRST_STEPS, record.jobs[job].total_steps))
            if when <= at:
                record.first_steps_at[job] = when

    def _credit(self, copy: _RunningCopy, at: float) -> None:
        """Credit a job with the device time of a copy since the last credit."""
        device_s, time = self._record.device_s[copy.unit.job], at - copy.held_from
        for device in copy.unit.devices:
            device_s[self._true_speeds.cluster.accelerator_of[device]] += time
        copy.held_from = at

    def _record_interval(self, copy: _RunningCopy, at: float) -> None:
        if self._record.intervals is not None:
            job, first = np.array([copy.unit.job]), np.array(copy.unit.devices[:1])
            start = np.array([copy.held_from])
            self._record.intervals.add(job, first, np.array([len(copy.unit.devices)]), start, at)
