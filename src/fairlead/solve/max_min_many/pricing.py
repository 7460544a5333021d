"""Many distinct classes in one stage: everyone's decision at given prices, and what it uses."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.hull import BLOCK, ByteArray, Hulls, Segments

# The level is known much better than the prices before a stage is exact.
_LEVEL_WEIGHT = 16.0


class StageClasses:
    """The classes that rise in a stage, by resource first since all work goes by resource."""

    def __init__(
        self, gain: FloatArray, size: FloatArray, count: FloatArray, capacity: FloatArray
    ) -> None:
        self.gain = gain  # resources × classes; 0 on closed resources, some > 0 for each class
        self.size, self.count, self.capacity = size, count, capacity
        self.cap = gain.max(axis=0)
        self.held = count * size  # devices that a whole class holds
        self.hulls = Hulls(gain)
        self._rivals = (gain == self.cap).sum(axis=0) > 1

    def sample(self, chosen: IntArray) -> "StageClasses":
        """Return these classes alone, with as much capacity as their share of all demand."""
        room = self.capacity * float(self.held[chosen].sum() / self.held.sum())
        gain = np.ascontiguousarray(self.gain[:, chosen])
        return StageClasses(gain, self.size[chosen], self.count[chosen], room)

    def cost(self, t: float, prices: FloatArray) -> float:
        """Return what it costs at least to bring everyone to min(t, cap)."""
        way = self.hulls.segments_at(np.minimum(t, self.cap), prices[:, None] * self.size)
        return float((self.count * way.cost).sum())

    def decide(self, t: float, prices: FloatArray) -> "Decision":
        """Return everyone's cheapest way to min(t, cap) at these prices."""
        worth = prices[:, None] * self.size
        level = np.minimum(t, self.cap)
        way = self.hulls.segments_at(level, worth)
        lower, upper, rate = _ends(self.gain, way, level)
        return Decision(t, worth, way, upper, lower, np.where(self.cap <= t, 0.0, rate))

    def use(self, t: float, prices: FloatArray) -> FloatArray:
        """Return what all classes use of the resources at min(t, cap) and these prices."""
        used = np.zeros(len(self.gain))
        for start in range(0, len(self.size), BLOCK):
            part = slice(start, start + BLOCK)
            level = np.minimum(t, self.cap[part])
            worth = prices[:, None] * self.size[part]
            way = self.hulls.segments_at(level, worth, part, slopes=False)
            lower, upper, _ = _ends(self.gain[:, part], way, level)
            held = self.held[part]
            used += _total(way.high, held * upper, len(used))
            used += _total(way.low, held * lower, len(used))
        return used

    def response(self, decision: "Decision", among: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return what the classes ``among`` use at the decision's t, and more of per unit of t."""
        way, width = decision.way, len(self.gain)
        held = self.held * among
        used = _total(way.high, held * decision.upper, width)
        used += _total(way.low, held * decision.lower, width)
        more = held * decision.rate
        return used, _total(way.high, more, width) - _total(way.low, more, width)

    def margin(self, decision: "Decision") -> FloatArray:
        """Return classes → relative change of prices or t that could change the decision."""
        way, t, worth = decision.way, decision.t, decision.worth
        index = np.arange(len(self.size))
        intercept = way.cost - way.slope * np.minimum(t, self.cap)
        support = intercept + way.slope * self.gain
        spare = (worth - support) / np.maximum(worth + support, 1e-200)
        spare[self.gain <= 0] = np.inf
        spare[way.high, index] = np.inf
        mixed = (way.low >= 0).nonzero()[0]
        spare[way.low[mixed], mixed] = np.inf
        least = spare.min(axis=0)
        least[mixed] = np.minimum(
            least[mixed], -intercept[mixed] / np.maximum(way.cost[mixed], 1e-200)
        )
        near = _LEVEL_WEIGHT * np.abs(self.gain / t - 1.0).min(axis=0)
        # At its cap a class has no choice left, unless two resources give the cap.
        least = np.where((self.cap <= t) & ~self._rivals, near, np.minimum(least, near))
        margin: FloatArray = np.maximum(least, 0.0)
        return margin

    def regret(self, decision: "Decision", now: "Decision") -> FloatArray:
        """Return classes → what an earlier decision costs more than the one taken now.

        Infinite where the earlier one cannot be followed to the level of now.
        """
        level = np.minimum(now.t, self.cap)
        upper = decision.upper + decision.rate * (level - np.minimum(decision.t, self.cap))
        mixed = decision.way.low >= 0
        lower = np.where(mixed, 1.0 - upper, 0.0)
        cost = select_rows(now.worth, decision.way.high) * upper
        cost += select_rows(now.worth, decision.way.low) * lower
        lost = (
            (upper < -1e-12) | (upper > 1 + 1e-12) | ((decision.rate == 0) != (self.cap <= now.t))
        )
        return np.where(lost, np.inf, self.count * (cost - now.way.cost))


@dataclass(frozen=True, slots=True)
class Decision:
    """Each class's segment, its shares on the two ends, and their rate of change with t."""

    t: float
    worth: FloatArray  # resources × classes: size times price
    way: Segments
    upper: FloatArray  # share on the high end
    lower: FloatArray  # share on the low end, 0 where that is idleness
    rate: FloatArray  # d upper / d t = - d lower / d t; 0 at the cap

    def shares(self, t: float, cap: FloatArray, width: int) -> FloatArray:
        """Return classes × resources → share when the water stands at t."""
        move = self.rate * (np.minimum(t, cap) - np.minimum(self.t, cap))
        index = np.arange(len(cap))
        share = np.zeros((len(cap), width))
        mixed = self.way.low >= 0
        share[index[mixed], self.way.low[mixed]] = (self.lower - move)[mixed]
        share[index, self.way.high] = self.upper + move
        return share


def _ends(
    gain: FloatArray, way: Segments, level: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares on the low and the high end of each segment, and their rate with t."""
    mixed = way.low >= 0
    bottom = np.where(mixed, select_rows(gain, way.low), 0.0)
    rise = select_rows(gain, way.high) - bottom
    rate = np.divide(1.0, rise, out=np.zeros_like(rise), where=rise > 0)
    upper = (level - bottom) * rate
    return np.where(mixed, 1.0 - upper, 0.0), upper, rate


def select_rows(table: FloatArray, row: ByteArray) -> FloatArray:
    """Return for each column of ``table`` its entry in the given row; the last for row -1."""
    flat = np.ascontiguousarray(table).ravel()
    selected: FloatArray = flat.take(
        (row % len(table)).astype(np.int64) * len(row) + np.arange(len(row))
    )
    return selected


def _total(resource: ByteArray, amount: FloatArray, width: int) -> FloatArray:
    """Return resources → sum of the amounts; resource -1 is idleness and left out."""
    total: FloatArray = np.bincount(resource + 1, amount, width + 1)[1:].astype(np.float64)
    return total


def spread_indices(population: int, wanted: int) -> IntArray:
    """Return about ``wanted`` distinct indices spread evenly and aperiodically over a range."""
    if population <= wanted:
        return np.arange(population)
    golden = 0.6180339887498949
    return np.unique((population * ((np.arange(wanted) * golden) % 1.0)).astype(np.int64))
