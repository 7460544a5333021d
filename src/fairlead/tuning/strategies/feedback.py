"""Early feedback with dynamic priority (Gandiva §6.2).

All trials share the devices by time slicing, so that each is seen early. After every report the
strategy predicts the probability that the trial reaches the target. The most promising trials get
a weight at which they need not share their devices; the others take turns on the rest, those with
the greatest probability per report first. Trials that almost certainly miss it are stopped.
"""

from collections.abc import Mapping, Sequence

from fairlead.tuning.prediction import HIGH_CEILING, probability_to_reach, rises_steadily_to
from fairlead.tuning.strategies.base import Decision, LearningCurve

_HOPELESS = 0.001
"""probability below which a trial is stopped"""
_REST = 0.5
"""weight that all trials without priority divide"""
_LEVELS = 8
"""trials without priority whose weights differ"""


class Feedback:
    """Predicts all curves; gives priority to the best and stops the hopeless."""

    def __init__(
        self, min_progress: float, exclusive: int = 2, target: float | None = None
    ) -> None:
        self._min_progress, self._exclusive, self._target = min_progress, exclusive, target
        self._predicted: dict[int, tuple[tuple[int, float, float], float]] = {}
        """trial → its number of reports, goal and worst value, and the probability from them"""

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Rank the trials by the probability that they reach the target or beat the best."""
        unfinished = [curve for curve in curves if not curve.has_ended]
        low, goal = self._range(curves)
        chance = {c.trial: self._chance(c, goal, low) for c in unfinished if c.value}
        stopped = {
            curve.trial
            for curve in unfinished
            if chance.get(curve.trial, 1.0) < _HOPELESS
            and curve.progress[-1] >= self._min_progress - 1e-12
            and _is_hopeless(curve, goal, low)
        }
        live = [curve.trial for curve in unfinished if curve.trial not in stopped]
        ranked = sorted((t for t in live if t in chance), key=lambda t: (-chance[t], t))
        first = set(ranked[: self._exclusive])
        if not first:
            return Decision(frozenset(stopped), dict.fromkeys(live, 1.0))
        reports = {curve.trial: len(curve.value) for curve in unfinished}
        others = _in_turn([trial for trial in live if trial not in first], chance, reports)
        return Decision(frozenset(stopped), dict.fromkeys(sorted(first), 1.0) | _halved(others))

    def _range(self, curves: Sequence[LearningCurve]) -> tuple[float, float]:
        """Return the worst first value, and the target or else the best value."""
        reported = [curve for curve in curves if curve.value]
        low = min((curve.value[0] for curve in reported), default=0.0)
        best = max((curve.best for curve in reported), default=0.0)
        return low, best if self._target is None else self._target

    def _chance(self, curve: LearningCurve, goal: float, low: float) -> float:
        basis = (len(curve.value), goal, low)
        known = self._predicted.get(curve.trial)
        if known is None or known[0] != basis:
            known = basis, probability_to_reach(goal, low, curve.progress, curve.value)
            self._predicted[curve.trial] = known
        return known[1]


def _is_hopeless(curve: LearningCurve, goal: float, low: float) -> bool:
    """Return whether a trial misses the goal even if that is easy to surpass."""
    if rises_steadily_to(goal, curve.progress, curve.value):
        return False
    chance = probability_to_reach(goal, low, curve.progress, curve.value, HIGH_CEILING)
    return chance < _HOPELESS


def _in_turn(
    trials: Sequence[int], chance: Mapping[int, float], reports: Mapping[int, int]
) -> list[int]:
    """Return the trials without priority in the order in which they should run.

    Time in proportion to the probabilities means that the next one has the greatest probability
    per report. Unseen trials count as much as an average one.
    """
    unseen = sum(chance.values()) / len(chance)
    due = {t: chance.get(t, unseen) / (reports[t] + 1) for t in trials}
    return sorted(trials, key=lambda t: (-due[t], t))


def _halved(trials: Sequence[int]) -> dict[int, float]:
    """Return trial → weight, each half of the one before, so that the scheduler keeps the order.

    A scheduler counts the time that a trial should have had at its weights until now. At weights
    in proportion to the probabilities a trial that becomes promising would wait until it has
    gathered enough of it.
    """
    return {trial: _REST * 2.0 ** -(1 + min(place, _LEVELS)) for place, trial in enumerate(trials)}
