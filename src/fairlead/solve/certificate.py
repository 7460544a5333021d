"""Prices as proof: the level that all capacity, at its prices, can pay for.

At prices p a member of class k reaches level L for no less than

    C_k(L; p) = min{ size_k Σ_j p_j x_j : gain_k · x >= L, Σ_j x_j <= 1, x >= 0 },

the lower convex hull of the points (0, 0) and (gain_kj, size_k p_j). Feasible shares cannot
cost more than all capacity is worth, so levels whose cheapest cost exceeds that are impossible
at any prices. See docs/design/solver.md.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import FloatArray
from fairlead.solve.hull import Hulls


def certify(prices: FloatArray, bound: float, reached: float) -> Certificate:
    """Return the certificate of having ``reached`` a level that ``prices`` bound."""
    gap = (bound - reached) / bound if bound > 0 else 0.0
    return Certificate(prices, bound, gap)


@dataclass(frozen=True, slots=True)
class Demand:
    """Classes that are to reach a level: t where ``granted`` is NaN, otherwise that number."""

    gain: FloatArray  # classes × resources
    size: FloatArray
    count: FloatArray
    granted: FloatArray

    def largest_level(self, prices: FloatArray, budget: float) -> float:
        """Return the greatest t, up to the least cap, whose cheapest cost is within ``budget``.

        The result errs upwards, never below the true greatest t, up to rounding.
        """
        cap = self.gain.max(axis=1)
        free = np.isnan(self.granted)
        granted = np.minimum(self.granted, cap)
        hulls, worth = Hulls(np.ascontiguousarray(self.gain.T)), prices[:, None] * self.size
        t = float(cap[free].min())
        for _ in range(200):  # Newton from the right on a convex function of line pieces: finite.
            way = hulls.segments_at(np.where(free, t, granted), worth, careful=True)
            over = float((self.count * way.cost).sum()) - budget
            incline = float((self.count * way.slope)[free].sum())
            step = t - over / incline if over > 1e-15 * budget and incline > 0 else t
            if not step < t:
                break
            t = max(step, 0.0)
        return t
