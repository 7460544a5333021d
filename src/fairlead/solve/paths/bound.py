"""The greatest theta of a path that all capacity can pay for, at given prices.

Any prices bound a path: feasible shares cannot cost more than all capacity is worth, so the
path cannot be climbed beyond the greatest theta whose levels' cheapest ways cost no more. This
is Newton's step of the climb, and its certificate.
"""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.solve.hull import CostCurves, Hulls, Segments
from fairlead.solve.paths.path import Path

_MAX_STEPS = 200
_PAID = 1e-14  # relative: costs as much as the budget
_NEXT = 1e-10


class ClimbingClasses:
    """Classes that climb a path, and what their levels cost at any prices."""

    def __init__(
        self, gain: FloatArray, size: FloatArray, count: FloatArray, path: Path, index: IntArray
    ) -> None:
        self.gain = gain  # resources × classes; 0 on closed resources
        self.size, self.count = size, count
        self.path, self.index = path, index  # classes → class of the path
        self.cap = gain.max(axis=0)
        self._hulls = Hulls(gain)

    def level(self, theta: float) -> FloatArray:
        """Return classes → level at ``theta``."""
        level: FloatArray = np.minimum(self.path.level(theta)[self.index], self.cap)
        return level

    def rate(self, theta: float) -> FloatArray:
        """Return classes → growth of the level just above ``theta``."""
        return self.path.rate(theta)[self.index]

    def ways(self, level: FloatArray, prices: FloatArray) -> Segments:
        """Return the cheapest ways to these levels."""
        return self._hulls.segments_at(level, prices[:, None] * self.size, careful=True)

    def greatest(
        self, prices: FloatArray, budget: float, low: float, high: float, excess: float = 0.0
    ) -> float:
        """Return the greatest theta in [low, high] whose levels cost no more than ``budget``.

        Levels grow in pieces, neither convex nor concave: Newton's steps, halving where they
        leave the bracket. The result is right up to rounding, and ``low`` is taken to be paid.
        With an ``excess`` it may be a greater theta, whose levels cost that part more.
        """
        at, paid = high, _PAID * budget
        curves = self._curves(prices)
        for _ in range(_MAX_STEPS):
            over, incline = self._over(at, curves, budget)
            if over > paid:
                high = at
                if over <= excess * budget:
                    return high
            elif at == high:
                return at
            else:
                low = at
                if over > -paid:
                    # The budget is spent here, but what comes next may cost nothing for a while.
                    next_to = at + _NEXT * at
                    if next_to >= high or self._over(next_to, curves, budget)[0] > paid:
                        return at
                    low = next_to
            step = at - over / incline if incline > 0 else low
            if over > paid and step >= at:
                return at
            if not low < step < high:
                step = low + 0.5 * (high - low)
                if not low < step < high:
                    return high
            at = step
        return high

    def affords(self, prices: FloatArray, budget: float, theta: float) -> bool:
        """Return whether the levels at ``theta`` cost no more than ``budget``."""
        return self._over(theta, self._curves(prices), budget)[0] <= _PAID * budget

    def _curves(self, prices: FloatArray) -> CostCurves:
        return CostCurves(self.gain, prices[:, None] * self.size)

    def _over(self, theta: float, curves: CostCurves, budget: float) -> tuple[float, float]:
        """Return by how much the levels at ``theta`` cost more, and how fast that grows."""
        cost, slope = curves.cost(self.level(theta))
        over = float((self.count * cost).sum()) - budget
        return over, float((self.count * slope * self.rate(theta)).sum())
