"""Population-based training (Jaderberg et al. 2017): poor trials continue as clones of good ones.

After every interval of its training a trial is compared with the others. If it is in the bottom
quantile, it stops, and a new trial continues the checkpoint of one in the top quantile, with
changed hyperparameters (§4: truncation selection, perturb and resample). None waits.
"""

import math
from collections.abc import Sequence

import numpy as np

from fairlead.tuning.strategies.base import Decision, LearningCurve

_ROUNDING = 1e-9


class PopulationBased:
    """Replaces the worst trials of a population by clones of the best."""

    def __init__(self, interval: float, quantile: float = 0.25, seed: int = 0) -> None:
        self._interval, self._quantile, self._seed = interval, quantile, seed

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Compare each trial once after every interval that it has completed."""
        population = _population(curves)
        judged: dict[int, int] = {}
        replaced: dict[int, int] = {}
        for curve in filter(_trains, population):
            intervals = self._intervals(curve.progress[-1])
            if intervals > max(curve.judged, self._begun(curve)):
                judged[curve.trial] = intervals
                source = self._source(curve, intervals, population)
                if source is not None:
                    replaced[curve.trial] = source
        return Decision(judged=judged, replaced=replaced)

    def _intervals(self, progress: float) -> int:
        return math.floor(progress / self._interval + _ROUNDING)

    def _begun(self, curve: LearningCurve) -> int:
        """Return the intervals before a clone: its first comparison is after one of its own."""
        return 0 if curve.replaces is None else self._intervals(curve.progress[0])

    def _source(
        self, curve: LearningCurve, intervals: int, population: Sequence[LearningCurve]
    ) -> int | None:
        """Return the trial to clone in place of one of the worst; None if it is not."""
        at = intervals * self._interval
        ranked = sorted(population, key=lambda c: (-_value_at(c, at), c.trial))
        count = math.floor(self._quantile * len(ranked) + _ROUNDING)
        if not count or curve.trial not in [c.trial for c in ranked[-count:]]:
            return None
        best = [*filter(_trains, ranked[:count])]
        if not best:
            return None
        rng = np.random.default_rng([self._seed, curve.trial, intervals])
        return best[int(rng.integers(len(best)))].trial


def _population(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """Return the trials that train or are complete; stopped ones until their clones report.

    Otherwise the next worst would move into the bottom quantile as soon as one is replaced.
    """
    begun = {c.replaces for c in curves if not (c.value or c.has_ended)}
    return [c for c in curves if c.value and (_trains(c) or _is_complete(c) or c.trial in begun)]


def _trains(curve: LearningCurve) -> bool:
    return not (curve.has_ended or _is_complete(curve))


def _is_complete(curve: LearningCurve) -> bool:
    return bool(curve.progress) and curve.progress[-1] >= 1.0 - _ROUNDING


def _value_at(curve: LearningCurve, progress: float) -> float:
    """Return the last value up to a progress; the first one of a clone that began later."""
    reached = sum(1 for at in curve.progress if at <= progress + _ROUNDING)
    return curve.value[max(reached - 1, 0)]
