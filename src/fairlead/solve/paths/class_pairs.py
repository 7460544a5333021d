"""Each class's way to its level at given prices: two columns between which it divides its time.

Columns are the resources and, last, idleness. A tie of cost is decided by the tie rule's costs.
"""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray

TIED = 1e-10  # relative to the sum of prices: smaller differences of cost are ties
_AT_LEVEL = 1e-13  # relative: a level on the edge of a way's span
_BELOW_CAP = 1e-9  # relative: where the way to a cap is chosen
_ABOVE_NOTHING = 1e-6  # relative to the cap: where the way from nothing is chosen


class ClassPairs:
    """The pairs of all classes, their use of the columns and the cost of their alternatives."""

    def __init__(self, gain: FloatArray, size: FloatArray, tie_cost: FloatArray) -> None:
        classes, width = gain.shape
        self.width, self.classes = width, classes
        self.gain = np.column_stack([gain, np.zeros(classes)])
        self.tie_cost = np.column_stack([tie_cost / size[:, None], np.zeros(classes)])
        """classes × columns → the tie rule's cost of a device"""
        self.cap = gain.max(axis=1)
        self._open: BoolArray = self.gain > 0
        self._open[:, width] = True
        self._rows: IntArray = np.arange(classes)
        self.pair: IntArray = np.zeros((2, classes), np.int64)
        self.top, self.bottom = np.zeros(classes), np.zeros(classes)
        """classes → gain of the pair's first and of its second column, which is less"""
        self.basic: BoolArray = np.zeros(classes, bool)
        """classes → has further columns beside its pair"""

    def choose(
        self, among: IntArray, level: FloatArray, prices: FloatArray, tie_prices: FloatArray
    ) -> None:
        """Give the classes ``among`` their cheapest pairs to ``level``, which is that of all."""
        gain, is_open = self.gain[among], self._open[among]
        cap = self.cap[among]
        at = np.clip(level[among], cap * _ABOVE_NOTHING, cap * (1 - _BELOW_CAP))[:, None]
        above, below = is_open & (gain > at), is_open & (gain <= at)
        spans = above[:, :, None] & below[:, None, :]
        rise = np.where(spans, gain[:, :, None] - gain[:, None, :], 1.0)
        part = (at - gain)[:, None, :] / rise
        cost = np.where(spans, prices + part * (prices[:, None] - prices), np.inf)
        flat = cost.reshape(len(among), -1)
        near = flat <= flat.min(axis=1, keepdims=True) + TIED
        chosen = near.argmax(axis=1)
        many = (np.count_nonzero(near, axis=1) > 1).nonzero()[0]
        if len(many):
            tie = tie_prices + self.tie_cost[among[many]]
            second = tie[:, None, :] + part[many] * (tie[:, :, None] - tie[:, None, :])
            second = np.where(near[many], second.reshape(len(many), -1), np.inf)
            chosen[many] = second.argmin(axis=1)
        columns = self.width + 1
        self.pair[0, among], self.pair[1, among] = np.divmod(chosen, columns)
        self.top[among] = self.gain[among, self.pair[0, among]]
        self.bottom[among] = self.gain[among, self.pair[1, among]]

    def set_pair(self, k: int, a: int, b: int) -> None:
        """Make a class divide its time between columns a and b, of which a gains more."""
        self.pair[0, k], self.pair[1, k] = a, b
        self.top[k], self.bottom[k] = self.gain[k, a], self.gain[k, b]

    def outside(self, level: FloatArray) -> IntArray:
        """Return the classes whose pairs do not span their levels."""
        high = level > self.top * (1 + _AT_LEVEL)
        low = level < self.bottom * (1 - _AT_LEVEL)
        return ((high | low) & ~self.basic).nonzero()[0]

    def shares(self, level: FloatArray) -> FloatArray:
        """Return classes → share of time on the first column of the pair."""
        share: FloatArray = (level - self.bottom) / (self.top - self.bottom)
        return share

    def use(
        self, held: FloatArray, level: FloatArray, rate: FloatArray
    ) -> tuple[list[float], list[float]]:
        """Return columns → devices that all classes use, and more of them per theta."""
        first, second = self.pair
        rise, columns = self.top - self.bottom, self.width + 1
        upper = held * ((level - self.bottom) / rise)
        more = held * rate / rise
        used = np.bincount(first, upper, columns) + np.bincount(second, held - upper, columns)
        risen = np.bincount(first, more, columns) - np.bincount(second, more, columns)
        return used.tolist(), risen.tolist()

    def slope(self, prices: FloatArray) -> FloatArray:
        """Return classes → cost of more level."""
        slope: FloatArray = (prices[self.pair[0]] - prices[self.pair[1]]) / (
            self.top - self.bottom
        )
        return slope

    def spare(self, prices: FloatArray) -> FloatArray:
        """Return classes × columns → cost of the column above the class's way."""
        slope = self.slope(prices)
        start = prices[self.pair[1]] - slope * self.bottom
        spare: FloatArray = prices - start[:, None]
        spare -= slope[:, None] * self.gain
        return spare

    def tie_spare(self, tie_prices: FloatArray, at: IntArray) -> FloatArray:
        """Return the same by the tie rule for the entries ``at`` (2 × entries)."""
        k, column = at
        cost = tie_prices + self.tie_cost[k]
        rows = np.arange(len(k))
        first, second = cost[rows, self.pair[0, k]], cost[rows, self.pair[1, k]]
        slope = (first - second) / (self.top[k] - self.bottom[k])
        spare: FloatArray = cost[rows, column] - second
        spare -= slope * (self.gain[k, column] - self.bottom[k])
        return spare

    def alternatives(self, level: FloatArray) -> BoolArray:
        """Return classes × columns → the class might use it: it is neither idle nor at its cap."""
        moves = (level > 0) & (level < self.cap * (1 - TIED))
        other: BoolArray = self._open & moves[:, None]
        other[self._rows, self.pair[0]] = False
        other[self._rows, self.pair[1]] = False
        return other

    def change(self, k: int, column: int) -> list[float]:
        """Return columns → additional devices per device of ``column``, at the same level."""
        change = [0.0] * (self.width + 1)
        top, bottom = float(self.top[k]), float(self.bottom[k])
        part = (float(self.gain[k, column]) - bottom) / (top - bottom)
        change[column] += 1.0
        change[int(self.pair[0, k])] -= part
        change[int(self.pair[1, k])] -= 1.0 - part
        return change
