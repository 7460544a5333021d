"""Controller of a simulated search: reads the trials' reports, follows the strategy."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.events import Event, JobCancelled, JobChanged, JobReleased
from fairlead.model.job import Job
from fairlead.model.submission.bounds import MIN_WEIGHT
from fairlead.tuning.strategies.base import Decision, LearningCurve, Strategy

_ROUNDING = 1e-6
"""part of a report that a sum of floating-point steps may lack"""


class SearchReviewer:
    """Does in a simulation what the controller of a search does on a server."""

    def __init__(
        self,
        values: FloatArray,
        jobs: Sequence[Job],
        strategy: Strategy,
        target: float,
        *,
        parallel: int,
        period_s: float,
        limit_s: float,
    ) -> None:
        self._values: list[list[float]] = values.tolist()
        """trials → values of its reports; the greater, the better"""
        self._jobs, self._strategy, self._target = list(jobs), strategy, target
        self._parallel, self._limit_s = parallel, limit_s
        reports = values.shape[1]
        self._progress = [(i + 1) / reports for i in range(reports)]
        self._curves = [LearningCurve(trial, [], []) for trial in range(len(jobs))]
        self._reported = np.zeros(len(jobs), dtype=np.int64)
        self._submitted = min(parallel, len(jobs))
        self.period_s = period_s
        self.held: Collection[str] = frozenset(job.id for job in jobs[self._submitted :])
        self.found_at = float("inf")
        """seconds until a trial reported the target"""
        self.best_at: list[tuple[float, float]] = []
        """seconds and value of every report that was better than all before"""

    @property
    def seen(self) -> int:
        """Number of trials with a report."""
        return int(np.count_nonzero(self._reported))

    @property
    def stopped(self) -> int:
        """Number of trials that the strategy stopped."""
        ended = sum(1 for curve in self._curves if curve.has_ended)
        return ended - int(np.count_nonzero(self._reported == len(self._progress)))

    def review(self, at: float, steps: FloatArray) -> Sequence[Event] | None:
        """Return the changes that the strategy wants; None once the search has ended."""
        if not self._read(at, steps):
            return []
        ended = all(curve.has_ended for curve in self._curves)
        if self.found_at < float("inf") or ended or at > self._limit_s:
            return None
        return self._carry_out(at, self._strategy.decide(self._curves[: self._submitted]))

    def _read(self, at: float, steps: FloatArray) -> bool:
        """Read new reports; return whether something must be decided."""
        reports = (steps + _ROUNDING).astype(np.int64)
        changed = (reports > self._reported).nonzero()[0].tolist()
        for trial in changed:
            count, values = int(reports[trial]), self._values[trial]
            new = values[self._reported[trial] : count]
            if not self.best_at or max(new) > self.best_at[-1][1]:
                self.best_at.append((at, max(new)))
            if max(new) >= self._target:
                self.found_at = min(self.found_at, at)
            ended = self._curves[trial].has_ended or count == len(values)
            self._curves[trial] = LearningCurve(
                trial, self._progress[:count], values[:count], ended
            )
        self._reported = np.maximum(self._reported, reports)
        return bool(changed) or at > self._limit_s

    def _carry_out(self, at: float, decision: Decision) -> list[Event]:
        events: list[Event] = []
        for trial in sorted(decision.stopped):
            self._curves[trial] = replace(self._curves[trial], has_ended=True)
            events.append(JobCancelled(at, self._jobs[trial].id))
        for trial, relative in decision.weight.items():
            weight = max(relative, MIN_WEIGHT)
            if weight != self._jobs[trial].weight and not self._curves[trial].has_ended:
                self._jobs[trial] = replace(self._jobs[trial], weight=weight)
                events.append(JobChanged(at, self._jobs[trial]))
        unfinished = sum(1 for c in self._curves[: self._submitted] if not c.has_ended)
        while unfinished < self._parallel and self._submitted < len(self._jobs):
            events.append(JobReleased(at, self._jobs[self._submitted].id))
            self._submitted += 1
            unfinished += 1
        return events
