"""Simulation of population-based training, with a model of the training.

Recorded curves do not tell how a clone with other hyperparameters continues, so that the caller
gives a function that trains for one report. The strategy and the sampler are those of a search on
a server.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fairlead.model.submission.search import Search
from fairlead.tuning.samplers import Point, perturbed_point, points
from fairlead.tuning.strategies import create_strategy
from fairlead.tuning.strategies.base import Decision, LearningCurve

State = TypeVar("State")


@dataclass(slots=True)
class SimulatedTrial(Generic[State]):
    """One trial of a population."""

    point: Point
    state: State
    """state of the training, as a checkpoint has it; values of this type do not change"""
    reports: int = 0
    """reports in its state, with those of the trials that it continues"""
    source: int | None = None
    """trial whose state it began with"""
    progress: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def simulate_population(
    search: Search,
    begin: State,
    train: Callable[[State, Point], tuple[State, float]],
    reports: int,
) -> Sequence[SimulatedTrial[State]]:
    """Return all trials of a search; unfinished ones report in turn, ``reports`` times each.

    ``train`` returns the state after one more report, and the reported value.
    """
    run = _Run(search, [SimulatedTrial(point, begin) for point in points(search)], reports)
    while unfinished := run.unfinished():
        for number in unfinished:
            if not run.curves[number].has_ended:
                trial = run.trials[number]
                trial.state, value = train(trial.state, trial.point)
                run.report(number, value)
    return run.trials


class _Run(Generic[State]):
    """A population in progress."""

    def __init__(self, search: Search, trials: list[SimulatedTrial[State]], reports: int) -> None:
        self._search, self._reports, self.trials = search, reports, trials
        self._strategy = create_strategy(search, reports)
        self.curves = [
            LearningCurve(number, trial.progress, trial.values)
            for number, trial in enumerate(trials)
        ]

    def unfinished(self) -> list[int]:
        """Return the trials that still train."""
        return [curve.trial for curve in self.curves if not curve.has_ended]

    def report(self, number: int, value: float) -> None:
        """Add a report of a trial, and carry out the strategy's decision."""
        trial = self.trials[number]
        trial.reports += 1
        trial.progress.append(trial.reports / self._reports)
        trial.values.append(self._search.sign * value)
        if trial.reports == self._reports:
            self._end(number)
        self._carry_out(self._strategy.decide(self.curves))

    def _end(self, number: int) -> None:
        self.curves[number] = replace(self.curves[number], has_ended=True)

    def _carry_out(self, decision: Decision) -> None:
        for number, judged in decision.judged.items():
            self.curves[number] = replace(self.curves[number], judged=judged)
        for number, source in decision.replaced.items():
            self._end(number)
            self._clone(source, number)

    def _clone(self, source: int, replaced: int) -> None:
        number, parent = len(self.trials), self.trials[source]
        point = perturbed_point(self._search, parent.point, number)
        clone = SimulatedTrial(point, parent.state, parent.reports, source)
        self.trials.append(clone)
        self.curves.append(LearningCurve(number, clone.progress, clone.values, replaces=replaced))
