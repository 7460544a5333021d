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
from operator import mul

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.value import value
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import CAP_TOLERANCE, FillingStage
from fairlead.solve.max_min.small_system import solve_small

_TIED = 1e-7  # relative to all prices: what costs so little more may be as good
_ROUNDING = 1e-11  # devices, relative to the capacity
_FREE = 0.02
_MAX_STEPS = 32


@value
class WarmSolution:
    """Everyone's shares, and the stage that stopped all but those who stand at their caps."""

    share: FloatArray  # classes × resources, of a member
    stages: list[FillingStage]


class _MarginalColumn:
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
        self.changed = [(j, more) for j, more in enumerate(self.change) if more]


@value
class _ClassStatus:
    """Where everyone stands at these prices."""

    rising: BoolArray
    frozen: BoolArray
    all_frozen: bool
    least_cap: float  # of those whom the prices stop


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
        self._excluded: BoolArray = np.ones_like(self._closed)
        """classes × columns → no alternative: the class cannot run there, it is part of its way,
        or it has none, since it stands at its cap or has no members"""
        self._pairs = [(0, width)] * classes
        self._pair: IntArray = np.tile(np.array([[0], [width]]), classes)
        self._rise, self._low = np.ones(classes), np.zeros(classes)
        """classes → gain of the first column above the second, gain of the second"""
        self._way = np.zeros((classes, 2 * width))
        """classes → shares at t = 0, and their change with t; nothing without members"""
        self._limit = np.tile(np.array([[-math.inf], [math.inf]]), classes)
        """the levels between which a way leads; none for marginal classes and without members"""
        self._capped: BoolArray = np.zeros(classes, bool)
        self._live: BoolArray = np.zeros(classes, bool)
        self._extra: list[_MarginalColumn] = []
        self._unpriced: list[int] = []
        self._pegged: dict[int, tuple[int, float]] = {}
        """resources whose price is still a guess, so many times that of another"""
        self._prices: list[float] = []
        self._basis: list[list[float]] = []
        """resources → what each extra column and each resource unpriced or pegged uses of it"""
        self._t = 0.0
        self._proved = False
        self._stopped: BoolArray = np.ones(classes, bool)
        """classes → more level would cost it something"""
        self._standing: _ClassStatus | None = None
        """known from a stage's end until something has to be proved again"""

    def start(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        """Begin from the first stage of an answer; tell whether its prices say enough."""
        if not self._price(t, prices, live):
            return False
        spare = self._spare([self._prices])[0]
        stopped = self._slope[0] > _TIED
        for k, column in np.argwhere((spare <= _TIED) & stopped[:, None]).tolist():
            self._add_extra(k, column)
        if len(self._extra) + len(self._unpriced) != self._width - 1:
            return False
        return self._find_prices()

    def guess(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        """Begin from prices that are about right; tell whether they say enough."""
        # What is worth next to nothing probably has no price.
        if not self._price(t, np.where(prices > _FREE * prices.max(), prices, 0.0), live):
            return False
        dearest = max(range(self._width), key=self._prices.__getitem__)
        self._pegged = {
            j: (dearest, self._prices[j] / self._prices[dearest])
            for j in range(self._width)
            if j != dearest and j not in self._unpriced
        }
        self._find_basis()
        return True

    def _price(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        total = float(prices.sum())
        if total <= 0:
            return False
        self._t, self._live, self._extra, self._pegged = t, live, [], {}
        self._prices = [*(prices / total).tolist(), 0.0]
        self._unpriced = [j for j in range(self._width) if self._prices[j] <= _TIED]
        return all(self._choose(k) for k in live.nonzero()[0].tolist())

    def solve(self, count: FloatArray) -> WarmSolution | None:
        """Return the answer for so many members of each class; None: it is not found this way."""
        found = self.stage(count)
        if found is None:
            return None
        first, share = found
        assert self._standing is not None
        if self._standing.all_frozen:
            return WarmSolution(share, [first])
        rest = self._live & ~first.frozen
        cap = self._raise_to_caps(share, rest, count * self._table.size)
        if cap is None:
            return None
        return WarmSolution(share, [first, FillingStage(cap, first.prices, rest)])

    def stage(self, count: FloatArray) -> tuple[FillingStage, FloatArray] | None:
        """Return the first stage and everyone's shares when it ends; only those frozen are final.

        None: it is not found this way, or those whom it froze may have other shares.
        """
        held = count * self._table.size
        stray = self._update_live_classes(count > 0)
        for _ in range(_MAX_STEPS + len(count) * bool(self._pegged)):
            for k in stray:
                if not self._choose(k):
                    return None
            total, found = self._balance(held)
            if found is None or not found[0] > 0:
                return None
            self._t = t = found[0]
            off = (self._limit[0] > t) | (self._limit[1] < t)
            stray = off.nonzero()[0].tolist()
            if stray:
                continue
            if self._pegged:
                left = dict(zip(self._pegged, found[-len(self._pegged) :], strict=True))
                most = max(left, key=lambda j: abs(left[j]))
                if not self._release_pegged_price(most, left[most]):
                    return None
                continue
            amounts = self._marginal_amounts(found, held)
            worst = min(amounts, key=amounts.__getitem__, default=None)
            if worst is None or amounts[worst] >= -self._rounding:
                if not self._proved:
                    spare = self._spare([self._prices])[0]
                    if not self._is_unique(spare, self._slope[0]):
                        return None
                rise = sum(map(mul, self._prices, total[self._width :]))
                return self._ended(amounts, count, held, rise)
            if not self._step(*worst):
                return None
        return None

    def _update_live_classes(self, live: BoolArray) -> list[int]:
        """Let those go who have no members any more; return those who have some again."""
        if live.tobytes() == self._live.tobytes():
            return []
        gone = self._live > live
        self._way[gone] = 0.0
        self._excluded[gone] = True
        self._limit[0, gone], self._limit[1, gone] = -math.inf, math.inf
        stray: list[int] = (live > self._live).nonzero()[0].tolist()
        self._live, self._proved = live, False
        return stray

    def _choose(self, k: int) -> bool:
        """Give a class its cheapest way to t; return False if there may be others as cheap."""
        t, gain, prices = self._t, self._gains[k], self._prices
        if t >= self._caps[k]:
            best = gain.index(self._caps[k])
            self._capped[k] = True
            self._set_pair(k, best, self._width)
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
        self._set_pair(k, *pair)
        return True

    def _set_pair(self, k: int, a: int, b: int) -> None:
        """Let a class divide its time between two columns, as decided."""
        gain, width = self._gains[k], self._width
        way = [0.0] * (2 * width)
        barred = [True] * (width + 1)
        if self._capped[k]:
            way[a] = 1.0
            limit = (self._caps[k], math.inf)
        else:
            barred = self._closed[k].tolist()
            barred[a] = barred[b] = True
            rate = 1.0 / (gain[a] - gain[b])
            way[a], way[width + a] = -gain[b] * rate, rate
            if b < width:
                way[b], way[width + b] = gain[a] * rate, -rate
            limit = (min(gain[a], gain[b]), max(gain[a], gain[b]))
        if self._live[k]:
            self._way[k] = way
            self._limit[:, k] = limit
            self._excluded[k] = barred
        self._pairs[k] = a, b
        self._pair[:, k] = a, b
        self._rise[k], self._low[k] = gain[a] - gain[b], gain[b]
        self._proved = False

    def _add_extra(self, k: int, column: int) -> None:
        self._extra.append(_MarginalColumn(k, column, self._pairs[k], self._gains[k]))
        self._limit[:, k] = -math.inf, math.inf

    def _find_basis(self) -> None:
        alone = (*self._unpriced, *self._pegged)
        self._basis = [
            [extra.change[j] for extra in self._extra] + [1.0 if u == j else 0.0 for u in alone]
            for j in range(self._width)
        ]

    def _balance(self, held: FloatArray) -> tuple[list[float], list[float] | None]:
        """Return what all ways use, at t = 0 and with more t, and what follows from that.

        That is t, devices of each extra column, and what is left of what is unpriced or pegged.
        """
        if compiled is not None:
            return compiled.balance(held, self._way, self._basis, self._capacity)
        total: list[float] = (held[:, None] * self._way).sum(axis=0).tolist()
        used, risen = total[: self._width], total[self._width :]
        rows = zip(risen, self._basis, self._capacity, used, strict=True)
        return total, solve_small([[rise, *row, there - use] for rise, row, there, use in rows])

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
            for column, change in extra.changed:
                amounts[k, column] = amounts.get((k, column), 0.0) + change * amount
        first = 1 + len(self._extra)
        for u, left in zip(self._unpriced, found[first:], strict=False):
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
        return self._move_prices(leaving)

    def _release_pegged_price(self, column: int, left: float) -> bool:
        """Move a pegged price as what is left of it asks, until somebody is indifferent."""
        other, ratio = self._pegged.pop(column)
        rise = 1.0 if left < 0 else -1.0
        leaving = [0.0] * self._width
        leaving[column], leaving[other] = rise, -rise * ratio
        return self._move_prices(leaving)

    def _move_prices(self, leaving: list[float]) -> bool:
        """Move prices so that ``leaving`` grows, until a class is indifferent or a price is 0."""
        rows = [[*row, 0.0] for row in self._price_rows()]
        rows += [[*leaving, 1.0], [*([1.0] * self._width), 0.0]]
        direction = solve_small(rows)
        if direction is None:
            return False
        spare, change_of = self._spare([self._prices, [*direction, 0.0]])
        falls = change_of < -_TIED
        ratio = np.divide(spare, -change_of, out=np.full_like(spare, np.inf), where=falls)
        at = int(ratio.argmin())
        least = float(ratio.flat[at])
        empty = -1
        for j, rate in enumerate(direction):
            priced = rate < -_TIED and j not in self._unpriced
            if priced and self._prices[j] < -rate * least * (1 + _TIED):
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
        self._is_unique(spare + least * change_of, slope)
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
        self._set_pair(k, a, b)
        for other in rest:
            if other not in (a, b):
                self._add_extra(k, other)
        return _MarginalColumn(k, column, (a, b), gain).change

    def _price_rows(self) -> list[list[float]]:
        width = self._width
        rows = [extra.change[:width] for extra in self._extra]
        for j, (other, ratio) in self._pegged.items():
            rows.append([1.0 if i == j else -ratio if i == other else 0.0 for i in range(width)])
        return rows + [[1.0 if j == u else 0.0 for j in range(width)] for u in self._unpriced]

    def _find_prices(self) -> bool:
        """Find the prices at which every extra column costs as much as the pair beside it."""
        rows = [[*row, 0.0] for row in self._price_rows()]
        found = solve_small([*rows, [*([1.0] * self._width), 1.0]])
        self._proved = False
        if found is None:
            return False
        empty = [j for j, p in enumerate(found) if p < _TIED and j not in self._unpriced]
        if empty:
            return min(found) > -_TIED and self._drop_zero_prices(empty) and self._find_prices()
        self._prices = [*found, 0.0]
        self._find_basis()
        return True

    def _drop_zero_prices(self, empty: list[int]) -> bool:
        """Let resources whose prices fell to 0 together have none, and who is stopped no more go.

        A class all of whose columns are free is as well decided.
        """
        free = {*self._unpriced, *empty, self._width}
        for j in empty:
            for extra in self._extra:
                if all(column in free for column, _ in extra.changed):
                    break
            else:
                return False
            self._extra.remove(extra)
            self._set_pair(extra.k, *self._pairs[extra.k])
            if any(other.k == extra.k for other in self._extra):
                self._limit[:, extra.k] = -math.inf, math.inf
            self._unpriced.append(j)
        return True

    def _spare(self, prices: list[list[float]]) -> FloatArray:
        """Return prices × classes × columns → what the column costs above the class's way.

        With the first prices it is infinite for what is no alternative.
        """
        table = np.array(prices)
        pair = table.take(self._pair, axis=1)
        self._slope: FloatArray = (pair[:, 0] - pair[:, 1]) / self._rise
        level = pair[:, 1] - self._slope * self._low
        spare: FloatArray = table[:, None, :] - level[:, :, None]
        spare -= self._slope[:, :, None] * self._gain
        np.putmask(spare[0], self._excluded, np.inf)
        return spare

    def _is_unique(self, spare: FloatArray, slope: FloatArray) -> bool:
        """Tell whether stopped classes have no other shares: all that they do not use costs more.

        ``spare`` is classes × columns, ``slope`` what more level costs each class: nothing, if it
        is not stopped.
        """
        for extra in self._extra:
            spare[extra.k, extra.column] = np.inf
        self._stopped = slope > _TIED
        tied = (spare <= _TIED).T & self._stopped
        self._proved, self._standing = not np.count_nonzero(tied), None
        return self._proved

    def _ended(
        self,
        amounts: dict[tuple[int, int], float],
        count: FloatArray,
        held: FloatArray,
        rise: float,
    ) -> tuple[FillingStage, FloatArray] | None:
        """Return the stage; ``rise`` is what all classes together pay for more level."""
        if self._standing is None:
            self._standing = self._class_status()
        standing, width = self._standing, self._width
        if not self._t * (1 + CAP_TOLERANCE) < standing.least_cap < np.inf:
            return None  # it may be that only caps stop the water
        share = self._way[:, :width] + self._t * self._way[:, width:]
        for (k, column), amount in amounts.items():
            if k >= 0 and column < width and self._live[k]:
                share[k, column] = amount / held[k]
        scale = float(count.dot(standing.rising)) / rise  # as a program scales its duals
        prices = np.array([scale * price for price in self._prices[:width]])
        return FillingStage(self._t, prices, standing.frozen), share

    def _class_status(self) -> "_ClassStatus":
        rising = self._live & ~self._capped
        least_cap = float(self._table.cap[rising & self._stopped].min(initial=np.inf))
        frozen = self._live & (self._stopped | self._capped)
        all_frozen = np.count_nonzero(frozen) == np.count_nonzero(self._live)
        return _ClassStatus(rising, frozen, all_frozen, least_cap)

    def _raise_to_caps(self, share: FloatArray, rest: BoolArray, held: FloatArray) -> float | None:
        """Bring the rest to their caps where nothing has a price; None if that does not fit."""
        unpriced = np.zeros(self._width, bool)
        unpriced[self._unpriced] = True
        table = self._table.without(~unpriced, rest)
        share[rest] = table.best[rest]
        used = (held[:, None] * share).sum(axis=0)
        fits = (used <= np.array(self._capacity) * (1 + 1e-12))[unpriced].all()
        return float(table.cap[rest].max()) if fits and table.alone[rest].all() else None
