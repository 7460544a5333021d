"""Prices as proof: what a level costs a class at given prices, and the level a budget allows.

At prices p a member of class k reaches level L for no less than

    C_k(L; p) = min{ size_k Σ_j p_j x_j : gain_k · x >= L, Σ_j x_j <= 1, x >= 0 },

the lower convex hull of the points (0, 0) and (gain_kj, size_k p_j). Feasible shares cannot
cost more than all capacity is worth, so levels whose cheapest cost exceeds that are impossible,
whatever the prices. See docs/design/solver.md.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.solve.arrays import FloatArray

# A block of classes whose temporaries stay in the second-level cache.
_BLOCK = 4096


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


def cheapest(
    gain: FloatArray, size: FloatArray, prices: FloatArray, level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return classes → least cost of ``level`` and its slope in the level, per member.

    ``level`` must not exceed a class's greatest gain. On a kink the slope is that of the
    segment below it, or steeper: it never promises a saving that a lower level would not bring.
    """
    cost = np.empty(len(size))
    slope = np.empty(len(size))
    for start in range(0, len(size), _BLOCK):
        block = slice(start, start + _BLOCK)
        cost[block], slope[block] = _hull(gain[block].T, size[block], prices, level[block])
    return cost, slope


def _hull(
    gain: FloatArray, size: FloatArray, prices: FloatArray, level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    worth = prices[:, None] * size
    above = gain >= level
    cost = np.full(len(size), np.inf)
    slope = np.zeros(len(size))
    origin = np.zeros(len(size))
    for a in range(-1, len(gain)):
        # A segment starts at the origin or at a resource that gains less than the level.
        low_gain, low_cost = (gain[a], worth[a]) if a >= 0 else (origin, origin)
        for b in range(len(gain)):
            if a == b:
                continue
            rise = gain[b] - low_gain
            usable = above[b] & (rise > 0)
            if a >= 0:
                usable &= ~above[a]
            tilt = (worth[b] - low_cost) / np.where(usable, rise, 1.0)
            value = np.where(usable, low_cost + tilt * (level - low_gain), np.inf)
            better = value < cost
            # Segments that end where the level stands tie; the steepest is the hull's.
            tied = value <= cost * (1 + 1e-14)
            slope = np.where(better & ~tied | tied & (tilt > slope), tilt, slope)
            cost = np.where(better, value, cost)
    zero = level <= 0
    cost[zero & ~np.isfinite(cost)] = 0.0
    return cost, slope


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
    t = float(cap[free].min())
    for _ in range(200):  # Newton from the right on a convex piecewise-linear function: finite.
        cost, slope = cheapest(gain, size, prices, np.where(free, t, granted))
        over = float((count * cost).sum()) - budget
        incline = float((count * slope)[free].sum())
        step = t - over / incline if over > 1e-15 * budget and incline > 0 else t
        if not step < t:
            break
        t = max(step, 0.0)
    return t
