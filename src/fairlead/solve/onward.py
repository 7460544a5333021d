"""The next answer from the last one, where one stage stops everyone: no program is solved.

At a stage's prices every class has a cheapest way to the water's level: a pair of resources (or
one and idleness) between which it divides its time, so that its use is linear in t. Only for a
few, the marginal classes, a third one costs no more. So t, what the marginal classes use of
their third, and what is left of resources without a price follow from one equation a resource;
and the prices follow from who is marginal and what has none. Neither depends on how many members
a class has, so when counts change the ways are tried as they are. A class whose pair does not
span the new t takes the cheapest that does. Where a marginal class would use less than nothing,
or more is used than there is, prices move away from that until somebody else is indifferent: a
step of the dual simplex method. An answer is returned only when it is proved to be the only one.
"""

import math
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.table import ClassTable

_TIED = 1e-7  # relative to all prices: what costs so little more may be as good
_ROUNDING = 1e-11  # devices, relative to the capacity
_SINGULAR = 1e-12
_MOST_STEPS = 32


@dataclass(frozen=True, slots=True)
class Onwards:
    """Where the water stands now: its level, the prices and everyone's shares."""

    t: float
    prices: FloatArray
    share: FloatArray  # classes × resources, of a member


class _Extra:
    """A marginal class's third column: what one device more of it changes elsewhere."""

    def __init__(self, k: int, column: int, pair: tuple[int, int], gain: list[float]) -> None:
        a, b = pair
        self.k, self.column = k, column
        first = (gain[column] - gain[b]) / (gain[a] - gain[b])
        self.change = [0.0] * len(gain)
        """columns → devices more"""
        self.change[column] += 1.0
        self.change[a] -= first
        self.change[b] -= 1.0 - first


class Onward:
    """Everyone's way at a stage's prices. Columns are the resources and, last, idleness."""

    def __init__(self, table: ClassTable, capacity: FloatArray) -> None:
        classes, width = table.gain.shape
        self._table, self._width = table, width
        self._capacity: list[float] = capacity.tolist()
        self._rounding = _ROUNDING * float(capacity.sum())
        self._gain = np.column_stack([table.gain, np.zeros(classes)])
        self._gains: list[list[float]] = self._gain.tolist()
        self._caps: list[float] = table.cap.tolist()
        self._closed: BoolArray = self._gain <= 0
        self._closed[:, width] = False
        self._other: BoolArray = ~self._closed
        """classes × columns → it could be used, and is not part of the way"""
        self._pairs = [(0, width)] * classes
        self._pair: IntArray = np.tile(np.array([[0], [width]]), classes)
        self._rise, self._low = np.ones(classes), np.zeros(classes)
        """classes → gain of the first column above the second, gain of the second"""
        self._way = np.zeros((classes, 2 * width))
        """classes → shares at t = 0, and their change with t"""
        self._limit = np.zeros((2, classes))
        """the levels between which a way leads; none for marginal classes"""
        self._capped: BoolArray = np.zeros(classes, bool)
        self._live: BoolArray = np.zeros(classes, bool)
        self._extra: list[_Extra] = []
        self._unpriced: list[int] = []
        self._prices: list[float] = []
        self._t = 0.0
        self._proved = False

    def start(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        """Begin from a stage that stopped all live classes; tell whether its prices say enough."""
        total = float(prices.sum())
        if total <= 0:
            return False
        self._t, self._live, self._extra = t, live, []
        self._prices = [*(prices / total).tolist(), 0.0]
        self._unpriced = [j for j in range(self._width) if self._prices[j] <= _TIED]
        for k in live.nonzero()[0].tolist():
            if not self._choose(k):
                return False
        spare = self._spare([self._prices])[0]
        spare[~live | self._capped] = np.inf
        for k, column in np.argwhere(spare <= _TIED).tolist():
            self._add_extra(k, column)
        if len(self._extra) + len(self._unpriced) != self._width - 1:
            return False
        return self._find_prices()

    def solve(self, count: FloatArray) -> Onwards | None:
        """Return the answer for so many members of each class; None: it is not found this way."""
        live = count > 0
        held = count * self._table.size
        fresh = live > self._live
        self._live = live
        stray = fresh.nonzero()[0].tolist()
        for _ in range(_MOST_STEPS):
            for k in stray:
                if not self._choose(k):
                    return None
            total = (held[:, None] * self._way).sum(axis=0).tolist()
            found = self._balance(total)
            if found is None or not found[0] > 0:
                return None
            self._t = t = found[0]
            off = (self._limit[0] > t) | (self._limit[1] < t)
            off &= live
            stray = off.nonzero()[0].tolist()
            if stray:
                continue
            amounts = self._marginal_amounts(found, held)
            worst = min(amounts, key=amounts.__getitem__, default=None)
            if worst is None or amounts[worst] >= -self._rounding:
                if not self._proved:
                    spare = self._spare([self._prices])[0]
                    if not self._prove(spare, self._slope[0]):
                        return None
                return self._answer(total, amounts, held)
            if not self._step(*worst):
                return None
        return None

    def _choose(self, k: int) -> bool:
        """Give a class its cheapest way to t; return False if there may be others as cheap."""
        t, gain, prices = self._t, self._gains[k], self._prices
        if t >= self._caps[k]:
            best = gain.index(self._caps[k])
            self._capped[k] = True
            self._set_way(k, best, self._width)
            return bool(self._table.alone[k])
        self._capped[k] = False
        columns = [j for j, g in enumerate(gain) if g > 0 or j == self._width]
        least, pair = math.inf, (0, self._width)
        for a in columns:
            if gain[a] <= t:
                continue
            for b in columns:
                if gain[b] <= t:
                    slope = (prices[a] - prices[b]) / (gain[a] - gain[b])
                    cost = prices[b] + slope * (t - gain[b])
                    if cost < least:
                        least, pair = cost, (a, b)
        self._set_way(k, *pair)
        return True

    def _set_way(self, k: int, a: int, b: int) -> None:
        """Let a class divide its time between two columns, as decided."""
        gain, width = self._gains[k], self._width
        way = [0.0] * (2 * width)
        if self._capped[k]:
            way[a] = 1.0
            limit = (self._caps[k], math.inf)
        else:
            rate = 1.0 / (gain[a] - gain[b])
            way[a], way[width + a] = -gain[b] * rate, rate
            if b < width:
                way[b], way[width + b] = gain[a] * rate, -rate
            limit = (min(gain[a], gain[b]), max(gain[a], gain[b]))
        self._way[k] = way
        self._pairs[k] = a, b
        self._pair[:, k] = a, b
        self._rise[k], self._low[k] = gain[a] - gain[b], gain[b]
        self._other[k] = ~self._closed[k]
        self._other[k, [a, b]] = False
        self._limit[:, k] = limit
        self._proved = False

    def _add_extra(self, k: int, column: int) -> None:
        self._extra.append(_Extra(k, column, self._pairs[k], self._gains[k]))
        self._limit[:, k] = -math.inf, math.inf

    def _balance(self, total: list[float]) -> list[float] | None:
        """Return t, devices of each extra column, and what is left of unpriced resources."""
        width = self._width
        rows = []
        for j in range(width):
            row = [total[width + j]]
            row += [extra.change[j] for extra in self._extra]
            row += [1.0 if u == j else 0.0 for u in self._unpriced]
            rows.append([*row, self._capacity[j] - total[j]])
        return solve_small(rows)

    def _marginal_amounts(
        self, found: list[float], held: FloatArray
    ) -> dict[tuple[int, int], float]:
        """Return (class, column) → devices, of marginal classes; as class -1 what is left over."""
        amounts: dict[tuple[int, int], float] = {}
        t = self._t
        for extra, amount in zip(self._extra, found[1:], strict=False):
            k = extra.k
            a, b = self._pairs[k]
            if (k, a) not in amounts:
                gain, devices = self._gains[k], float(held[k])
                part = (t - gain[b]) / (gain[a] - gain[b])
                amounts[k, a] = part * devices
                amounts[k, b] = (1.0 - part) * devices
            for column, change in enumerate(extra.change):
                if change:
                    amounts[k, column] = amounts.get((k, column), 0.0) + change * amount
        first = 1 + len(self._extra)
        for u, left in zip(self._unpriced, found[first:], strict=True):
            amounts[-1, u] = left
        return amounts

    def _step(self, k: int, column: int) -> bool:
        """Make a column dearer, for one class or for all, until somebody else is indifferent."""
        if k < 0:
            self._unpriced.remove(column)
            leaving = [1.0 if j == column else 0.0 for j in range(self._width)]
        else:
            change = self._drop(k, column)
            if change is None:
                return False
            leaving = change[: self._width]
        rows = [[*row, 0.0] for row in self._price_rows()]
        rows += [[*leaving, 1.0], [*([1.0] * self._width), 0.0]]
        direction = solve_small(rows)
        if direction is None:
            return False
        spare, change_of = self._spare([self._prices, [*direction, 0.0]])
        spare[self._capped | ~self._live] = np.inf
        falls = change_of < -_TIED
        ratio = np.divide(spare, -change_of, out=np.full_like(spare, np.inf), where=falls)
        at = int(ratio.argmin())
        least = float(ratio.flat[at])
        empty = -1
        for j, rate in enumerate(direction):
            if rate < -_TIED and j not in self._unpriced and self._prices[j] < -rate * least:
                least, empty = self._prices[j] / -rate, j
        if least == math.inf:
            return False
        if empty >= 0:
            self._unpriced.append(empty)
        else:
            self._add_extra(*divmod(at, self._width + 1))
        if not self._find_prices():
            return False
        slope = self._slope[0] + least * self._slope[1]
        self._prove(spare + least * change_of, slope)
        return True

    def _drop(self, k: int, column: int) -> list[float] | None:
        """Take a column from a marginal class; return what using it again would change."""
        gain = self._gains[k]
        extra = [one.column for one in self._extra if one.k == k]
        rest = [c for c in (*self._pairs[k], *extra) if c != column]
        a = max(rest, key=gain.__getitem__)
        b = min(rest, key=gain.__getitem__)
        if gain[a] == gain[b]:
            return None
        self._extra = [one for one in self._extra if one.k != k]
        self._set_way(k, a, b)
        for other in rest:
            if other not in (a, b):
                self._add_extra(k, other)
        return _Extra(k, column, (a, b), gain).change

    def _price_rows(self) -> list[list[float]]:
        width = self._width
        rows = [extra.change[:width] for extra in self._extra]
        return rows + [[1.0 if j == u else 0.0 for j in range(width)] for u in self._unpriced]

    def _find_prices(self) -> bool:
        """Find the prices at which every extra column costs as much as the pair beside it."""
        rows = [[*row, 0.0] for row in self._price_rows()]
        found = solve_small([*rows, [*([1.0] * self._width), 1.0]])
        self._proved = False
        if found is None or any(
            price < _TIED for j, price in enumerate(found) if j not in self._unpriced
        ):
            return False
        self._prices = [*found, 0.0]
        return True

    def _spare(self, prices: list[list[float]]) -> FloatArray:
        """Return prices × classes × columns → what the column costs above the class's way.

        Infinite for the columns of the way itself and those where a class cannot run.
        """
        table = np.array(prices)
        a, b = self._pair
        self._slope: FloatArray = (table[:, a] - table[:, b]) / self._rise
        level = table[:, b] - self._slope * self._low
        spare: FloatArray = table[:, None, :] - level[:, :, None]
        spare -= self._slope[:, :, None] * self._gain
        spare[0] = np.where(self._other, spare[0], np.inf)
        return spare

    def _prove(self, spare: FloatArray, slope: FloatArray) -> bool:
        """Tell whether the shares are the only ones: whatever a class does not use costs more.

        ``spare`` is classes × columns, ``slope`` what more level costs each class.
        """
        for extra in self._extra:
            spare[extra.k, extra.column] = np.inf
        least = np.minimum(spare.min(axis=1), slope)
        self._proved = float(least[self._live & ~self._capped].min(initial=np.inf)) > _TIED
        return self._proved

    def _answer(
        self, total: list[float], amounts: dict[tuple[int, int], float], held: FloatArray
    ) -> Onwards:
        width, prices = self._width, self._prices
        share = self._way[:, :width] + self._t * self._way[:, width:]
        share[~self._live] = 0.0
        for (k, column), amount in amounts.items():
            if k >= 0 and column < width and self._live[k]:
                share[k, column] = amount / held[k]
        rise = sum(p * more for p, more in zip(prices, total[width:], strict=False))
        return Onwards(self._t, np.array(prices[:width]) / rise, share)


def solve_small(rows: list[list[float]]) -> list[float] | None:
    """Return the solution of a few equations, each its coefficients and then its right side.

    None if they are singular. Faster than arrays up to about ten equations.
    """
    size = len(rows)
    for i in range(size):
        most, p = 0.0, i
        for r in range(i, size):
            here = abs(rows[r][i])
            if here > most:
                most, p = here, r
        if most < _SINGULAR:
            return None
        pivot = rows[p]
        rows[p], rows[i] = rows[i], pivot
        scale = 1.0 / pivot[i]
        for r in range(i + 1, size):
            row = rows[r]
            factor = row[i] * scale
            if factor:
                for c in range(i + 1, size + 1):
                    row[c] -= factor * pivot[c]
    found = [0.0] * size
    for i in range(size - 1, -1, -1):
        row = rows[i]
        rest = row[size]
        for j in range(i + 1, size):
            rest -= row[j] * found[j]
        found[i] = rest / row[i]
    return found
