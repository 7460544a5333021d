"""Intervals that hold an estimated speed with a stated probability."""

import math

Z_80 = 1.2815515655446004
"""standard deviations to either side of the mean that hold 80 % of a normal distribution"""


def interval_80(steps_per_s: float, doubt: float) -> tuple[float, float]:
    """Return the bounds of the 80 % interval; ``doubt``: standard deviation of the logarithm."""
    factor = math.exp(Z_80 * doubt)
    return steps_per_s / factor, steps_per_s * factor
