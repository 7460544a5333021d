"""Each class's way to the water's level at given prices: a pair of columns, sometimes a third.

A class divides its time between two columns (resources or, last, idleness), so that its use of
the resources is linear in the level t. A marginal class has further columns that cost no more.
"""

import math

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.value import value
from fairlead.solve.max_min.class_table import ClassTable

TIED = 1e-7  # relative to the sum of prices: smaller differences of cost count as ties


class MarginalColumn:
    """A marginal class's third column, and the change elsewhere per device of it."""

    def __init__(self, k: int, column: int, pair: tuple[int, int], gain: list[float]) -> None:
        a, b = pair
        self.k, self.column = k, column
        first = (gain[column] - gain[b]) / (gain[a] - gain[b])
        self.change = [0.0] * len(gain)
        """columns → additional devices"""
        self.change[column] += 1.0
        self.change[a] -= first
        self.change[b] -= 1.0 - first
        self.changed = [(j, more) for j, more in enumerate(self.change) if more]


@value
class ClassStatus:
    """Classes that rise or are frozen at the present prices."""

    rising: BoolArray
    frozen: BoolArray
    all_frozen: bool
    least_cap: float  # of the rising classes that the prices stop


class ClassWays:
    """The pairs and marginal columns of all classes; any change voids the proof of uniqueness."""

    def __init__(self, table: ClassTable) -> None:
        classes, width = table.gain.shape
        self.width = width
        self._cap, self._alone = table.cap, table.alone
        self._gain = np.column_stack([table.gain, np.zeros(classes)])
        self.gains: list[list[float]] = self._gain.tolist()
        self._caps: list[float] = table.cap.tolist()
        self._closed: BoolArray = self._gain <= 0
        self._closed[:, width] = False
        self._excluded: BoolArray = np.ones_like(self._closed)
        """classes × columns → no alternative: the class cannot run there or already uses it, or it
        needs none since it is at its cap or has no members"""
        self.pairs = [(0, width)] * classes
        self._pair: IntArray = np.tile(np.array([[0], [width]]), classes)
        self._rise, self._low = np.ones(classes), np.zeros(classes)
        """classes → gain of the first column above the second, gain of the second"""
        self.use = np.zeros((classes, 2 * width))
        """classes → shares at t = 0, then their change with t; 0 without members"""
        self.limit = np.tile(np.array([[-math.inf], [math.inf]]), classes)
        """least and greatest level of a way; infinite for marginal and absent classes"""
        self._capped: BoolArray = np.zeros(classes, bool)
        self.live: BoolArray = np.zeros(classes, bool)
        self.marginal: list[MarginalColumn] = []
        self.is_unique = False
        """whether it is proved that stopped classes have no other shares"""
        self._stopped: BoolArray = np.ones(classes, bool)
        """classes → a higher level would cost it something"""
        self._slope = np.zeros((1, classes))
        self._status: ClassStatus | None = None

    def update_live(self, live: BoolArray) -> list[int]:
        """Drop classes that lost all members; return classes that have members again."""
        if live.tobytes() == self.live.tobytes():
            return []
        gone = self.live > live
        self.use[gone] = 0.0
        self._excluded[gone] = True
        self.limit[0, gone], self.limit[1, gone] = -math.inf, math.inf
        returned: list[int] = (live > self.live).nonzero()[0].tolist()
        self.live, self.is_unique = live, False
        return returned

    def choose(self, k: int, t: float, prices: list[float]) -> bool:
        """Set a class's cheapest way to t; return False if another may cost the same."""
        gain = self.gains[k]
        if t >= self._caps[k]:
            best = gain.index(self._caps[k])
            self._capped[k] = True
            self.set_pair(k, best, self.width)
            return bool(self._alone[k])
        self._capped[k] = False
        columns = [j for j, g in enumerate(gain) if g > 0 or j == self.width]
        least, pair = math.inf, (0, self.width)
        for a in columns:
            if gain[a] <= t:
                continue
            for b in columns:
                if gain[b] <= t:
                    slope = (prices[a] - prices[b]) / (gain[a] - gain[b])
                    cost = prices[b] + slope * (t - gain[b])
                    if cost < least:
                        least, pair = cost, (a, b)
        self.set_pair(k, *pair)
        return True

    def set_pair(self, k: int, a: int, b: int) -> None:
        """Make a class divide its time between columns a and b, or stay on a at its cap."""
        gain, width = self.gains[k], self.width
        use = [0.0] * (2 * width)
        excluded = [True] * (width + 1)
        if self._capped[k]:
            use[a] = 1.0
            limit = (self._caps[k], math.inf)
        else:
            excluded = self._closed[k].tolist()
            excluded[a] = excluded[b] = True
            rate = 1.0 / (gain[a] - gain[b])
            use[a], use[width + a] = -gain[b] * rate, rate
            if b < width:
                use[b], use[width + b] = gain[a] * rate, -rate
            limit = (min(gain[a], gain[b]), max(gain[a], gain[b]))
        if self.live[k]:
            self.use[k] = use
            self.limit[:, k] = limit
            self._excluded[k] = excluded
        self.pairs[k] = a, b
        self._pair[:, k] = a, b
        self._rise[k], self._low[k] = gain[a] - gain[b], gain[b]
        self.is_unique = False

    def add_marginal(self, k: int, column: int) -> None:
        """Allow a class a further column beside its pair, at any level."""
        self.marginal.append(MarginalColumn(k, column, self.pairs[k], self.gains[k]))
        self.limit[:, k] = -math.inf, math.inf

    def add_tied(self, prices: list[float]) -> None:
        """Allow stopped classes all columns that cost no more than their pairs."""
        spare = self.spare([prices])[0]
        stopped = self._slope[0] > TIED
        for k, column in np.argwhere((spare <= TIED) & stopped[:, None]).tolist():
            self.add_marginal(k, column)

    def remove_column(self, k: int, column: int) -> list[float] | None:
        """Take a column from a marginal class; return the change per device of using it again.

        None if the remaining columns do not span a level.
        """
        gain = self.gains[k]
        further = [other.column for other in self.marginal if other.k == k]
        rest = [c for c in (*self.pairs[k], *further) if c != column]
        a = max(rest, key=gain.__getitem__)
        b = min(rest, key=gain.__getitem__)
        if gain[a] == gain[b]:
            return None
        self.marginal = [other for other in self.marginal if other.k != k]
        self.set_pair(k, a, b)
        for other in rest:
            if other not in (a, b):
                self.add_marginal(k, other)
        return MarginalColumn(k, column, (a, b), gain).change

    def remove_marginal(self, column: MarginalColumn) -> None:
        """Take a marginal column away, as one that costs nothing."""
        k = column.k
        self.marginal.remove(column)
        self.set_pair(k, *self.pairs[k])
        if any(other.k == k for other in self.marginal):
            self.limit[:, k] = -math.inf, math.inf

    def marginal_amounts(
        self, t: float, extra: list[float], held: FloatArray
    ) -> dict[tuple[int, int], float]:
        """Return (class, column) → devices of marginal classes, from those of third columns."""
        amounts: dict[tuple[int, int], float] = {}
        for marginal, amount in zip(self.marginal, extra, strict=False):
            k = marginal.k
            a, b = self.pairs[k]
            if (k, a) not in amounts:
                gain, devices = self.gains[k], float(held[k])
                part = (t - gain[b]) / (gain[a] - gain[b])
                amounts[k, a] = part * devices
                amounts[k, b] = (1.0 - part) * devices
            for column, change in marginal.changed:
                amounts[k, column] = amounts.get((k, column), 0.0) + change * amount
        return amounts

    def spare(self, prices: list[list[float]]) -> FloatArray:
        """Return prices × classes × columns → cost of the column above the class's way.

        With the first prices it is infinite for columns that are no alternative.
        """
        table = np.array(prices)
        pair = table.take(self._pair, axis=1)
        self._slope = (pair[:, 0] - pair[:, 1]) / self._rise
        level = pair[:, 1] - self._slope * self._low
        spare: FloatArray = table[:, None, :] - level[:, :, None]
        spare -= self._slope[:, :, None] * self._gain
        np.putmask(spare[0], self._excluded, np.inf)
        return spare

    def prove(self, prices: list[float]) -> bool:
        """Find whether stopped classes have no other shares: all other columns cost more."""
        spare = self.spare([prices])[0]
        return self._prove(spare, self._slope[0])

    def prove_after(self, spare: FloatArray, change: FloatArray, step: float) -> None:
        """Find the same after a ``step`` along the last two prices given to ``spare``."""
        self._prove(spare + step * change, self._slope[0] + step * self._slope[1])

    def _prove(self, spare: FloatArray, slope: FloatArray) -> bool:
        for marginal in self.marginal:
            spare[marginal.k, marginal.column] = np.inf
        self._stopped = slope > TIED
        tied = (spare <= TIED).T & self._stopped
        self.is_unique, self._status = not np.count_nonzero(tied), None
        return self.is_unique

    @property
    def status(self) -> ClassStatus:
        """The classes that rise or are frozen, as last proved."""
        if self._status is None:
            rising = self.live & ~self._capped
            least_cap = float(self._cap[rising & self._stopped].min(initial=np.inf))
            frozen = self.live & (self._stopped | self._capped)
            all_frozen = np.count_nonzero(frozen) == np.count_nonzero(self.live)
            self._status = ClassStatus(rising, frozen, all_frozen, least_cap)
        return self._status

    def shares(
        self, t: float, amounts: dict[tuple[int, int], float], held: FloatArray
    ) -> FloatArray:
        """Return classes × resources → share of a member at level t."""
        width = self.width
        share: FloatArray = self.use[:, :width] + t * self.use[:, width:]
        for (k, column), amount in amounts.items():
            if k >= 0 and column < width and self.live[k]:
                share[k, column] = amount / held[k]
        return share
