"""One stage of the water-filling for many distinct classes.

At the right prices nearly every class has one cheapest way to the water's level, and its use of
the resources is then linear in t: it is decided. Only the few for which two ways cost nearly
the same share what the others leave. So:

1. estimate prices from a sample (``interior``);
2. decide all classes whose cheapest way is clear, and give the others with t to a small exact
   program, which also returns better prices;
3. check every decision at those prices, move the ones that were wrong into the program, and
   repeat until nobody can do better. What is then proved is proved for all classes.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.solve.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.hull import Segments, segments

_MOST_ROUNDS = 30
_EXACT = 1e-12  # relative excess cost of all decisions together
_FIRST_MARGINAL = 48
_MOST_MARGINAL = 1200


@dataclass(frozen=True, slots=True)
class Pool:
    """The classes that rise in a stage, by resources first since all work is by resource."""

    gain: FloatArray  # resources × classes; 0 on closed resources
    size: FloatArray
    count: FloatArray
    cap: FloatArray
    capacity: FloatArray

    def decide(self, t: float, prices: FloatArray) -> "Decision":
        """Return everyone's cheapest way to min(t, cap) at these prices."""
        worth = prices[:, None] * self.size
        level = np.minimum(t, self.cap)
        found = segments(self.gain, worth, level)
        return Decision(found, self.cap <= t, worth)


@dataclass(frozen=True, slots=True)
class Decision:
    """Segments of the hulls, and which classes stand at their caps."""

    way: Segments
    capped: BoolArray
    worth: FloatArray

    def shares(self, pool: Pool, t: float) -> tuple[FloatArray, FloatArray]:
        """Return classes → share on the segment's low and high resource at level t."""
        index = np.arange(len(pool.size))
        low, high = self.way.low, self.way.high
        top = pool.gain[high, index]
        bottom = np.where(low >= 0, pool.gain[low, index], 0.0)
        upper = np.where(self.capped, 1.0, (t - bottom) / (top - bottom))
        return np.where((low >= 0) & ~self.capped, 1.0 - upper, 0.0), upper

    def margin(self, pool: Pool, t: float) -> FloatArray:
        """Return classes → relative change of prices or t that could change the decision."""
        index = np.arange(len(pool.size))
        low, high = self.way.low, self.way.high
        intercept = self.way.cost - self.way.slope * np.minimum(t, pool.cap)
        support = intercept + self.way.slope * pool.gain
        spare = (self.worth - support) / np.maximum(self.worth + support, 1e-300)
        spare[pool.gain <= 0] = np.inf
        spare[high, index] = np.inf
        spare[low, index] = np.where(low >= 0, np.inf, spare[low, index])
        idle = np.where(low >= 0, -intercept / np.maximum(self.way.cost, 1e-300), np.inf)
        near = np.abs(pool.gain / t - 1.0).min(axis=0)
        best = np.minimum(np.minimum(spare.min(axis=0), idle), near)
        rivals = (pool.gain == pool.cap).sum(axis=0) > 1
        at_cap = np.where(rivals, np.minimum(near, best), 1.0 - pool.cap / t)
        return np.where(self.capped, at_cap, best)

    def use(self, pool: Pool, among: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return what the chosen classes use of the resources: base + slope · t."""
        low_0, high_0 = self.shares(pool, 0.0)
        low_1, high_1 = self.shares(pool, 1.0)
        held = pool.count * pool.size * among
        low, high, width = self.way.low, self.way.high, len(pool.gain)
        base = np.bincount(high, held * high_0, width)
        slope = np.bincount(high, held * (high_1 - high_0), width)
        base += np.bincount(low + 1, held * low_0, width + 1)[1:]
        slope += np.bincount(low + 1, held * (low_1 - low_0), width + 1)[1:]
        return base, slope
