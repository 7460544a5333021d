"""Each class's way to its level at given prices: two columns between which it divides its time.

Columns are the resources and, last, idleness. A tie of cost is decided by the tie rule's costs.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import BoolArray, FloatArray, IntArray

TIED = 1e-10  # relative to the sum of prices: smaller differences of cost are ties
NEAR = 1e-7  # relative to the sum of prices: guessed prices are as exact as that
_AT_LEVEL = 1e-13  # relative: a level on the edge of a way's span
_BELOW_CAP = 1e-9  # relative: where the way to a cap is chosen
_ABOVE_NOTHING = 1e-6  # relative to the cap: where the way from nothing is chosen


class ClassPairs:
    """The pairs of all classes, their use of the columns and the cost of their alternatives."""

    def __init__(self, gain: FloatArray, size: FloatArray, tie_cost: FloatArray) -> None:
        classes, width = gain.shape
        self.width, self.classes = width, classes
        self._table = np.zeros((classes, 2, width + 1))
        self.gain, self.tie_cost = self._table[:, 0], self._table[:, 1]
        """classes × columns → level gained, and the tie rule's cost of a device"""
        self.gain[:, :width] = gain
        self.tie_cost[:, :width] = tie_cost / size[:, None]
        self.cap: FloatArray = gain.max(axis=1)
        self._rows: IntArray = np.arange(classes)
        self._state: IntArray = np.zeros((3, classes), np.int64)
        self.pair, self.basic = self._state[:2], self._state[2]
        """classes → columns of the pair, and 1 where it has further columns beside them"""
        self._ends = np.zeros((2, classes))
        self.top, self.bottom = self._ends
        """classes → gain of the pair's first and of its second column, which is less"""

    def choose(
        self, among: IntArray, level: FloatArray, prices: FloatArray, tie_prices: FloatArray
    ) -> None:
        """Give the classes ``among`` their cheapest pairs to ``level``, which is that of all."""
        if compiled is not None:
            compiled.choose_pairs(
                self._table, self._ends, self._state, level, prices, tie_prices, among
            )
            return
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

    def shares(self, level: FloatArray) -> FloatArray:
        """Return classes → share of time on the first column of the pair."""
        share: FloatArray = (level - self.bottom) / (self.top - self.bottom)
        return share

    def use(
        self,
        held: FloatArray,
        level: FloatArray,
        rate: FloatArray,
        choose_at: tuple[FloatArray, FloatArray] | None = None,
    ) -> tuple[list[float], list[float]]:
        """Return columns → devices that all classes use, and more of them per theta.

        With prices and the tie rule's prices, classes whose pairs do not span their levels
        choose others first.
        """
        columns = self.width + 1
        prices, tie_prices = choose_at or (np.zeros(columns), np.zeros(columns))
        if compiled is not None:
            return compiled.stage_use(
                self._table, self._ends, self._state, level, prices, tie_prices, held, rate,
                choose_at is not None,
            )  # fmt: skip
        if choose_at is not None:
            high = level > self.top * (1 + _AT_LEVEL)
            low = level < self.bottom * (1 - _AT_LEVEL)
            outside = ((high | low) & (self.basic == 0)).nonzero()[0]
            if len(outside):
                self.choose(outside, level, prices, tie_prices)
        first, second = self.pair
        rise = self.top - self.bottom
        upper = held * ((level - self.bottom) / rise)
        more = held * rate / rise
        used = np.bincount(first, upper, columns) + np.bincount(second, held - upper, columns)
        risen = np.bincount(first, more, columns) - np.bincount(second, more, columns)
        return used.tolist(), risen.tolist()

    def tied(
        self, level: FloatArray, prices: FloatArray, most: float, above: float = -np.inf
    ) -> list[tuple[int, int]]:
        """Return the classes and columns that cost no more than ``most`` above the class's way.

        Only classes are listed that are neither idle nor at their caps, and for which more level
        costs more than ``above``.
        """
        if compiled is not None:
            places = compiled.tied_columns(
                self._table, self._ends, self._state, level, prices, prices, most, above
            )
        else:
            tied = self._alternatives(level) & (self._spare(prices) <= most)
            tied &= (self._slope(prices) > above)[:, None]
            places = tied.ravel().nonzero()[0].tolist()
        columns = self.width + 1
        return [divmod(place, columns) for place in places]

    def next_marginal(
        self,
        level: FloatArray,
        prices: tuple[FloatArray, FloatArray, FloatArray],
        marginal: Sequence[tuple[int, int]],
        until: float,
    ) -> tuple[float, tuple[int, int] | None, float]:
        """Return how far prices move until a class is indifferent to a further column.

        With that come class and column, and how far by the tie rule. ``prices`` are those now, the
        tie rule's, and the direction in which the former move. None of ``marginal`` counts, and
        nothing that comes after ``until``.
        """
        now, tie_prices, direction = prices
        columns = self.width + 1
        if compiled is not None:
            known = [k * columns + column for k, column in marginal]
            least, place, second = compiled.next_marginal(
                self._table, self._ends, self._state, level, now, tie_prices, direction, known,
                until,
            )  # fmt: skip
            return least, None if place < 0 else divmod(place, columns), second
        fall = -self._spare(direction)
        may = self._alternatives(level) & (fall > NEAR)
        for k, column in marginal:
            may[k, column] = False
        at: IntArray = np.array(may.nonzero())
        rate = fall[at[0], at[1]]
        ratio = np.maximum(self._spare(now)[at[0], at[1]], 0.0) / rate
        least = min(float(ratio.min(initial=np.inf)), until)
        near = (ratio <= least + TIED).nonzero()[0]
        if not len(near):
            return least, None, np.inf
        tie = self._tie_spare(tie_prices, at[:, near]) / rate[near]
        chosen = int(tie.argmin())
        k, column = at[:, near[chosen]].tolist()
        return least, (k, column), float(tie[chosen])

    def least_tie_spare(self, tie_prices: FloatArray, at: Sequence[tuple[int, int]]) -> float:
        """Return the least cost, by the tie rule, of some columns above the classes' ways."""
        return float(self._tie_spare(tie_prices, np.array(at).T).min())

    def change(self, k: int, column: int) -> list[float]:
        """Return columns → additional devices per device of ``column``, at the same level."""
        change = [0.0] * (self.width + 1)
        top, bottom = float(self.top[k]), float(self.bottom[k])
        part = (float(self.gain[k, column]) - bottom) / (top - bottom)
        change[column] += 1.0
        change[int(self.pair[0, k])] -= part
        change[int(self.pair[1, k])] -= 1.0 - part
        return change

    @property
    def _open(self) -> BoolArray:
        """classes × columns → the class can use it."""
        is_open: BoolArray = self.gain > 0
        is_open[:, self.width] = True
        return is_open

    def _slope(self, prices: FloatArray) -> FloatArray:
        """Return classes → cost of more level."""
        slope: FloatArray = (prices[self.pair[0]] - prices[self.pair[1]]) / (
            self.top - self.bottom
        )
        return slope

    def _spare(self, prices: FloatArray) -> FloatArray:
        """Return classes × columns → cost of the column above the class's way."""
        slope = self._slope(prices)
        start = prices[self.pair[1]] - slope * self.bottom
        spare: FloatArray = prices - start[:, None]
        spare -= slope[:, None] * self.gain
        return spare

    def _tie_spare(self, tie_prices: FloatArray, at: IntArray) -> FloatArray:
        """Return the same by the tie rule for the entries ``at`` (2 × entries)."""
        k, column = at
        cost = tie_prices + self.tie_cost[k]
        rows = np.arange(len(k))
        first, second = cost[rows, self.pair[0, k]], cost[rows, self.pair[1, k]]
        slope = (first - second) / (self.top[k] - self.bottom[k])
        spare: FloatArray = cost[rows, column] - second
        spare -= slope * (self.gain[k, column] - self.bottom[k])
        return spare

    def _alternatives(self, level: FloatArray) -> BoolArray:
        """Return classes × columns → the class might use it: it is neither idle nor at its cap."""
        moves = (level > 0) & (level < self.cap * (1 - TIED))
        other: BoolArray = self._open & moves[:, None]
        other[self._rows, self.pair[0]] = False
        other[self._rows, self.pair[1]] = False
        return other
