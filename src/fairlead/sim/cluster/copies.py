"""Copies of one job in the virtual cluster: each makes its part, the steps add up."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.commands import Launch
from fairlead.model.events import LeasesEnded, Outcome
from fairlead.model.lease import Placement
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import FIRST_STEPS, Record


@dataclass(slots=True)
class _RunningCopy:
    """A copy under its lease."""

    unit: Placement
    rate: float
    """steps per second"""
    held_from: float
    works_from: float

    @property
    def done_at(self) -> float:
        """When it has made as many steps as it may."""
        return self.works_from + self.unit.max_steps / self.rate if self.rate else math.inf

    def made(self, at: float) -> float:
        """Return the steps it has made itself, never more than its part."""
        return min(max(at - self.works_from, 0.0) * self.rate, self.unit.max_steps)


class Copies:
    """The leases of forked jobs: a job is done when the steps of all its copies reach its total.

    A copy that has made its part gives up its devices; the steps of a copy count once, when its
    lease ends.
    """

    def __init__(
        self,
        truth: Truth,
        pace: JobProgress,
        record: Record,
        *,
        restore_cost_s: float,
        checkpoint_s: float,
    ) -> None:
        self._truth = truth
        self._pace = pace
        """of a forked job what it has made under leases that have ended, and where it last ran"""
        self._record = record
        self._restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        self._of: dict[int, _RunningCopy] = {}
        """lease → copy"""
        self._leases: dict[int, list[int]] = {}
        """job → leases of its copies"""
        self._next: dict[int, tuple[float, float]] = {}
        """job → when a copy has made its part, and when the job is done"""

    def __len__(self) -> int:
        return len(self._of)

    def is_copy(self, lease: IntArray) -> BoolArray:
        """leases → it is a copy's."""
        return np.array([number in self._of for number in lease.tolist()], dtype=bool)

    def launch(self, command: Launch, at: float) -> None:
        """Start copies."""
        units, job = command.on, command.on.job
        fresh = self._pace.first[job] < 0
        self._record.started_at[job[fresh]] = at
        works_from = np.where(fresh, at, at + self._restore_cost_s)
        if self._truth.laws is not None:
            works_from += np.where(fresh, 0.0, self._truth.laws.merge_s(job))
        self._pace.first[job] = units.first
        rate = self._truth.speed(units, self._truth.entry(units))
        rows = zip(command.lease.tolist(), units, rate.tolist(), works_from.tolist(), strict=True)
        for lease, unit, speed, begin in rows:
            self._of[lease] = _RunningCopy(unit, speed, at, begin)
            self._leases.setdefault(unit.job, []).append(lease)
        self._schedule_finish(np.unique(job).tolist())

    def next_at(self) -> float:
        """Return when the next job or part of one is done."""
        return min((min(times) for times in self._next.values()), default=math.inf)

    def finish(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End the copies of the job that is done now, if one is, or those with their part made."""
        job, leases = self._done_at(at)
        made = self._end(leases, at)
        if job is not None:
            self._pace.done[job] = self._pace.total[job]
            self._record.finished_at[job] = at
        outcome: Outcome = "left" if job is None else "finished"
        return job, LeasesEnded(at, np.array(leases, dtype=np.int64), made, outcome)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop copies; as they are merged, none of them is preempted."""
        return LeasesEnded(at, lease, self._end(lease.tolist(), at, outcome), outcome)

    def _done_at(self, at: float) -> tuple[int | None, list[int]]:
        """Return the job that is done now, if one is, and the leases that end with it or alone."""
        for job, (part_at, job_at) in sorted(self._next.items()):
            if job_at <= at:
                return job, list(self._leases[job])
            if part_at <= at:
                mine = self._leases[job]
                return None, [lease for lease in mine if self._of[lease].done_at <= at]
        raise LookupError("no copy is done now")

    def _end(self, lease: Iterable[int], at: float, outcome: Outcome = "left") -> FloatArray:
        """End leases; return the steps that each has made, and saved if it was lost.

        A lost copy has a checkpoint of every ``checkpoint_s``; all others save as they leave.
        """
        made = []
        touched: dict[int, None] = {}
        for number in lease:
            self._note_first_steps(self._of[number].unit.job, at)
        for number in lease:
            copy = self._of.pop(number)
            job = copy.unit.job
            until = at
            if outcome == "lost":
                worked = max(at - copy.works_from, 0.0)
                until = copy.works_from + worked // self._checkpoint_s * self._checkpoint_s
            made.append(copy.made(until))
            self._pace.done[job] += made[-1]
            self._note_interval(copy, at)
            self._credit(copy, at)
            self._leases[job].remove(number)
            touched[job] = None
        self._schedule_finish(touched)
        return np.array(made)

    def settle(self, at: float) -> None:
        """Credit jobs with the devices that their copies have held until now."""
        for copy in self._of.values():
            self._credit(copy, at)

    def progress(self, at: float) -> tuple[IntArray, FloatArray]:
        """Return the leases and the steps that each has made itself."""
        made = [copy.made(at) for copy in self._of.values()]
        return np.array(list(self._of), dtype=np.int64), np.array(made)

    def _schedule_finish(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            mine = [self._of[lease] for lease in self._leases[job]]
            if not mine:
                del self._leases[job]
                self._next.pop(job, None)
                continue
            total = self._record.jobs[job].total_steps
            part_at = min(copy.done_at for copy in mine)
            self._next[job] = part_at, self._reaches_at(job, total)

    def _reaches_at(self, job: int, goal: float) -> float:
        """Return when the steps of a job's copies add up to ``goal``; infinite if never.

        The sum is a polyline with corners where copies begin to work or have made their part.
        """
        mine = [self._of[lease] for lease in self._leases[job]]
        enough = goal - max(goal, 1.0) * 1e-9 - float(self._pace.done[job])
        corners = sorted({t for copy in mine for t in (copy.works_from, copy.done_at)})
        before = 0.0
        for corner, following in zip(corners, [*corners[1:], math.inf], strict=True):
            before = sum(copy.made(corner) for copy in mine)
            if before >= enough:
                return corner
            rate = sum(c.rate for c in mine if c.works_from <= corner < c.done_at)
            if rate and corner + (enough - before) / rate < following:
                return corner + (enough - before) / rate
        return math.inf

    def _note_first_steps(self, job: int, at: float) -> None:
        record = self._record
        if np.isnan(record.first_steps_at[job]):
            when = self._reaches_at(job, min(FIRST_STEPS, record.jobs[job].total_steps))
            if when <= at:
                record.first_steps_at[job] = when

    def _credit(self, copy: _RunningCopy, at: float) -> None:
        """Count the devices that a copy has held since it was last credited."""
        kinds = self._truth.cluster.accelerator_of[np.array(copy.unit.devices)]
        np.add.at(self._record.device_s[copy.unit.job], kinds, at - copy.held_from)
        copy.held_from = at

    def _note_interval(self, copy: _RunningCopy, at: float) -> None:
        if self._record.intervals is not None:
            job, first = np.array([copy.unit.job]), np.array(copy.unit.devices[:1])
            start = np.array([copy.held_from])
            self._record.intervals.add(job, first, np.array([len(copy.unit.devices)]), start, at)
