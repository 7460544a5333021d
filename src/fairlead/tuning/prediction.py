"""Prediction of learning curves, with their uncertainty.

Domhan et al. (IJCAI 2015), whom Gandiva follows, sample the parameters of eleven families of
curves by MCMC. Here the distance of a value to a ceiling falls as a power of the progress, as
errors do: ``log distance = a + b log progress`` plus noise. The posterior of ``a`` and ``b`` is
known in closed form, so that a prediction takes microseconds instead of minutes.
"""

import math
from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray

LOW_CEILING, HIGH_CEILING = 0.02, 0.2
"""heights of the ceiling above the goal, as parts of the distance from the worst value to it: for
goals that few trials reach, and for goals that may be easy"""
_LEVEL, _LEVEL_STD = -2.0, 1.5
"""prior of ``a``: the logarithm of the distance at the end of the training"""
_SLOPE, _SLOPE_STD = -0.4, 0.3
"""prior of ``b``"""
_MIN_NOISE = 0.1
_MODEL_STD = 0.3
"""error of the power law over a whole training"""
_STEADY = 0.8
"""least slope of the later half of a straight line's reports, relative to that of the earlier"""
_ROUNDING = 1e-9


def probability_to_reach(
    goal: float,
    low: float,
    progress: Sequence[float],
    value: Sequence[float],
    ceiling: float = LOW_CEILING,
) -> float:
    """Return the probability that a curve reaches the goal by the end of the training.

    ``low`` is the worst value of all trials; ``progress`` is above 0 and at most 1.
    """
    best = np.maximum.accumulate(np.array(value))
    if best[-1] >= goal:
        return 1.0
    span = max(goal - low, 1e-12)
    distance = np.minimum((goal - best) / span, 1.0) + ceiling
    z, x = np.log(distance), np.array(progress)
    log_x, noise = np.log(x), _noise(z)
    weight = x / x[-1] / noise**2  # the first steps tell little about the last
    s0 = float(weight.sum()) + _LEVEL_STD**-2
    s1 = float(weight @ log_x)
    s2 = float(weight @ log_x**2) + _SLOPE_STD**-2
    t0 = float(weight @ z) + _LEVEL * _LEVEL_STD**-2
    t1 = float(weight @ (log_x * z)) + _SLOPE * _SLOPE_STD**-2
    determinant = s0 * s2 - s1**2
    level = (s2 * t0 - s1 * t1) / determinant
    variance = s2 / determinant + noise**2 + (_MODEL_STD * (1.0 - progress[-1])) ** 2
    return 0.5 * math.erfc((level - math.log(ceiling)) / math.sqrt(2.0 * variance))


def rises_steadily_to(goal: float, progress: Sequence[float], value: Sequence[float]) -> bool:
    """Return whether a curve that flattens little so far reaches the goal in a straight line.

    The power law knows no such curves: it predicts that they flatten like all others.
    """
    best, x = np.maximum.accumulate(np.array(value)), np.array(progress)
    middle = len(x) // 2
    if middle < 1 or middle == len(x) - 1:
        return False
    before = (best[middle] - best[0]) / (x[middle] - x[0])
    since = (best[-1] - best[middle]) / (x[-1] - x[middle])
    end = best[-1] + since * (1.0 - x[-1])
    return bool(since >= _STEADY * before and end >= goal - _ROUNDING * abs(goal))


def _noise(z: FloatArray) -> float:
    """Return the standard deviation of a report, from second differences."""
    if len(z) < 4:
        return 2.0 * _MIN_NOISE
    second = z[2:] - 2.0 * z[1:-1] + z[:-2]
    return max(float(np.median(np.abs(second))) / (0.6745 * math.sqrt(6.0)), _MIN_NOISE)
