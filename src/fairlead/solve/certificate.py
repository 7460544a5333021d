"""Prices as proof: the level that all capacity, at its prices, can pay for.

At prices p a member of class k reaches level L for no less than

    C_k(L; p) = min{ size_k Σ_j p_j x_j : gain_k · x >= L, Σ_j x_j <= 1, x >= 0 },

the lower convex hull of the points (0, 0) and (gain_kj, size_k p_j). Feasible shares cannot
cost more than all capacity is worth, so levels whose cheapest cost exceeds that are impossible,
whatever the prices. See docs/design/solver.md.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.solve.arrays import FloatArray
from fairlead.solve.hull import Hulls


@dataclass(frozen=True, slots=True)
class Certificate:
    """Prices, the level they prove unsurpassable, and how far below it the answer lies."""

    prices: FloatArray  # resources, >= 0
    bound: float
    gap: float  # (bound - reached) / bound; negative only by rounding


def certify(prices: FloatArray, bound: float, reached: float) -> Certificate:
    """Return the certificate of having ``reached`` a level that ``prices`` bound."""
    gap = (bound - reached) / bound if bound > 0 else 0.0
    return Certificate(prices, bound, gap)


def largest_level(
    gain: FloatArray,
    size: FloatArray,
    count: FloatArray,
    granted: FloatArray,
    prices: FloatArray,
    budget: float,
) -> float:
    """Return the greatest t, up to the least cap, whose cheapest cost stays within ``budget``.

    A class with a number in ``granted`` is charged for that level, the others for t. The result
    errs upwards, never below the true greatest t, up to rounding.
    """
    cap = gain.max(axis=1)
    free = np.isnan(granted)
    granted = np.minimum(granted, cap)
    hulls, worth = Hulls(np.ascontiguousarray(gain.T)), prices[:, None] * size
    t = float(cap[free].min())
    for _ in range(200):  # Newton from the right on a convex piecewise-linear function: finite.
        found = hulls.over(np.where(free, t, granted), worth, careful=True)
        over = float((count * found.cost).sum()) - budget
        incline = float((count * found.slope)[free].sum())
        step = t - over / incline if over > 1e-15 * budget and incline > 0 else t
        if not step < t:
            break
        t = max(step, 0.0)
    return t
