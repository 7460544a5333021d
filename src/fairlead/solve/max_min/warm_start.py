"""Warm start: the next answer from the last one, without a program.

At a stage's prices every class has a cheapest way to the water's level: a pair of resources (or
one and idleness) between which it divides its time, so that its use is linear in t. Only for a
few, the marginal classes, a third one costs no more. So t, the marginal classes' use of their
third column, and the rest of resources without a price follow from one equation per resource;
and the prices follow from the marginal columns and the unpriced resources. Neither depends on
the number of members, so when counts change the ways are tried as they are. A class whose pair
does not span the new t takes the cheapest that does. Where a marginal class would use less than
nothing, or a resource is exceeded, prices move away from that until another class is
indifferent: a step of the dual simplex method. An answer is returned only when it is proved to
be the only one.
"""

import math
from operator import mul

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.value import value
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.class_ways import TIED, ClassWays
from fairlead.solve.max_min.filling import CAP_TOLERANCE, FillingStage
from fairlead.solve.max_min.small_system import solve_small_system

_ROUNDING = 1e-11  # devices, relative to the capacity
_FREE = 0.02
_MAX_STEPS = 32


@value
class WarmSolution:
    """Shares, the stage that stopped some classes, and one that brought the rest to their caps."""

    share: FloatArray  # classes × resources, of a member
    stages: list[FillingStage]


class WarmStage:
    """The prices of a stage and the classes' ways at them, kept for the next problem."""

    def __init__(self, table: ClassTable, capacity: FloatArray) -> None:
        self._table, self._width = table, table.gain.shape[1]
        self._ways = ClassWays(table)
        self._capacity: list[float] = capacity.tolist()
        self._rounding = _ROUNDING * float(capacity.sum())
        self._unpriced: list[int] = []
        self._pegged: dict[int, tuple[int, float]] = {}
        """resources whose price is still a guess → another resource, ratio to its price"""
        self._prices: list[float] = []
        self._basis: list[list[float]] = []
        """resources → use by each marginal column and each unpriced or pegged resource"""
        self._t = 0.0

    def start(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        """Start from the first stage of an answer; return False if its prices do not suffice."""
        if not self._set_prices(t, prices, live):
            return False
        self._ways.add_tied(self._prices)
        if len(self._ways.marginal) + len(self._unpriced) != self._width - 1:
            return False
        return self._find_prices()

    def guess(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        """Start from approximate prices; return False if they do not suffice."""
        # A resource that is worth next to nothing probably has no price.
        if not self._set_prices(t, np.where(prices > _FREE * prices.max(), prices, 0.0), live):
            return False
        dearest = max(range(self._width), key=self._prices.__getitem__)
        self._pegged = {
            j: (dearest, self._prices[j] / self._prices[dearest])
            for j in range(self._width)
            if j != dearest and j not in self._unpriced
        }
        self._find_basis()
        return True

    def _set_prices(self, t: float, prices: FloatArray, live: BoolArray) -> bool:
        total = float(prices.sum())
        if total <= 0:
            return False
        ways = self._ways
        self._t, ways.live, ways.marginal, self._pegged = t, live, [], {}
        self._prices = [*(prices / total).tolist(), 0.0]
        self._unpriced = [j for j in range(self._width) if self._prices[j] <= TIED]
        return all(ways.choose(k, t, self._prices) for k in live.nonzero()[0].tolist())

    def solve(self, count: FloatArray) -> WarmSolution | None:
        """Return the answer for these members of each class; None if prices do not lead to it."""
        end = self.stage(count)
        if end is None:
            return None
        first, share = end
        if self._ways.status.all_frozen:
            return WarmSolution(share, [first])
        rest = self._ways.live & ~first.frozen
        cap = self._raise_to_caps(share, rest, count * self._table.size)
        if cap is None:
            return None
        return WarmSolution(share, [first, FillingStage(cap, first.prices, rest)])

    def stage(self, count: FloatArray) -> tuple[FillingStage, FloatArray] | None:
        """Return the first stage and the shares at its end; only frozen classes' shares are final.

        None if prices do not lead to it, or if the frozen classes may have other shares.
        """
        ways, held = self._ways, count * self._table.size
        outside = ways.update_live(count > 0)
        for _ in range(_MAX_STEPS + len(count) * bool(self._pegged)):
            for k in outside:
                if not ways.choose(k, self._t, self._prices):
                    return None
            total, solution = self._balance(held)
            if solution is None or not solution[0] > 0:
                return None
            self._t = t = solution[0]
            off = (ways.limit[0] > t) | (ways.limit[1] < t)
            outside = off.nonzero()[0].tolist()
            if outside:
                continue
            if self._pegged:
                left = dict(zip(self._pegged, solution[-len(self._pegged) :], strict=True))
                most = max(left, key=lambda j: abs(left[j]))
                if not self._release_pegged_price(most, left[most]):
                    return None
                continue
            amounts = self._amounts(solution, held)
            worst = min(amounts, key=amounts.__getitem__, default=None)
            if worst is None or amounts[worst] >= -self._rounding:
                if not ways.is_unique and not ways.prove(self._prices):
                    return None
                rise = sum(map(mul, self._prices, total[self._width :]))
                return self._finished_stage(amounts, count, held, rise)
            if not self._step(*worst):
                return None
        return None

    def _find_basis(self) -> None:
        alone = (*self._unpriced, *self._pegged)
        self._basis = [
            [marginal.change[j] for marginal in self._ways.marginal]
            + [1.0 if u == j else 0.0 for u in alone]
            for j in range(self._width)
        ]

    def _balance(self, held: FloatArray) -> tuple[list[float], list[float] | None]:
        """Return the use by all ways at t = 0 and per t, and the solution of the equations.

        The solution is t, the devices of each marginal column, and the rest of each unpriced or
        pegged resource.
        """
        if compiled is not None:
            return compiled.balance(held, self._ways.use, self._basis, self._capacity)
        total: list[float] = (held[:, None] * self._ways.use).sum(axis=0).tolist()
        used, risen = total[: self._width], total[self._width :]
        rows = [
            [rise, *row, there - use]
            for rise, row, there, use in zip(risen, self._basis, self._capacity, used, strict=True)
        ]
        return total, solve_small_system(rows)

    def _amounts(self, solution: list[float], held: FloatArray) -> dict[tuple[int, int], float]:
        """Return (class, column) → devices of marginal classes; class -1 is the unpriced rest."""
        amounts = self._ways.marginal_amounts(self._t, solution[1:], held)
        first = 1 + len(self._ways.marginal)
        for u, left in zip(self._unpriced, solution[first:], strict=False):
            amounts[-1, u] = left
        return amounts

    def _step(self, k: int, column: int) -> bool:
        """Raise the cost of a column, for one class or for all, until a class is indifferent."""
        if k < 0:
            self._unpriced.remove(column)
            leaving = [1.0 if j == column else 0.0 for j in range(self._width)]
        else:
            change = self._ways.remove_column(k, column)
            if change is None:
                return False
            leaving = change[: self._width]
        return self._move_prices(leaving)

    def _release_pegged_price(self, column: int, left: float) -> bool:
        """Move a pegged price by the sign of its resource's rest until a class is indifferent."""
        other, ratio = self._pegged.pop(column)
        rise = 1.0 if left < 0 else -1.0
        leaving = [0.0] * self._width
        leaving[column], leaving[other] = rise, -rise * ratio
        return self._move_prices(leaving)

    def _move_prices(self, leaving: list[float]) -> bool:
        """Move prices so that ``leaving`` grows, until a class is indifferent or a price is 0."""
        rows = [[*row, 0.0] for row in self._price_rows()]
        rows += [[*leaving, 1.0], [*([1.0] * self._width), 0.0]]
        direction = solve_small_system(rows)
        if direction is None:
            return False
        spare, change_of = self._ways.spare([self._prices, [*direction, 0.0]])
        falls = change_of < -TIED
        ratio = np.divide(spare, -change_of, out=np.full_like(spare, np.inf), where=falls)
        at = int(ratio.argmin())
        least = float(ratio.flat[at])
        empty = -1
        for j, rate in enumerate(direction):
            is_priced = rate < -TIED and j not in self._unpriced
            if is_priced and self._prices[j] < -rate * least * (1 + TIED):
                least, empty = self._prices[j] / -rate, j
        if least == math.inf:
            return False
        if empty >= 0:
            self._unpriced.append(empty)
        else:
            self._ways.add_marginal(*divmod(at, self._width + 1))
        if not self._find_prices():
            return False
        self._ways.prove_after(spare, change_of, least)
        return True

    def _price_rows(self) -> list[list[float]]:
        width = self._width
        rows = [marginal.change[:width] for marginal in self._ways.marginal]
        for j, (other, ratio) in self._pegged.items():
            rows.append([1.0 if i == j else -ratio if i == other else 0.0 for i in range(width)])
        return rows + [[1.0 if j == u else 0.0 for j in range(width)] for u in self._unpriced]

    def _find_prices(self) -> bool:
        """Find the prices at which every marginal column costs as much as the pair beside it."""
        rows = [[*row, 0.0] for row in self._price_rows()]
        prices = solve_small_system([*rows, [*([1.0] * self._width), 1.0]])
        self._ways.is_unique = False
        if prices is None:
            return False
        empty = [j for j, p in enumerate(prices) if p < TIED and j not in self._unpriced]
        if empty:
            return min(prices) > -TIED and self._drop_zero_prices(empty) and self._find_prices()
        self._prices = [*prices, 0.0]
        self._find_basis()
        return True

    def _drop_zero_prices(self, empty: list[int]) -> bool:
        """Make resources unpriced whose prices fell to 0 together, and release their classes.

        A class whose columns are all free keeps its pair.
        """
        free = {*self._unpriced, *empty, self._width}
        for j in empty:
            for marginal in self._ways.marginal:
                if all(column in free for column, _ in marginal.changed):
                    break
            else:
                return False
            self._ways.remove_marginal(marginal)
            self._unpriced.append(j)
        return True

    def _finished_stage(
        self,
        amounts: dict[tuple[int, int], float],
        count: FloatArray,
        held: FloatArray,
        rise: float,
    ) -> tuple[FillingStage, FloatArray] | None:
        """Return the stage; ``rise`` is the cost to all classes per unit of level."""
        status, width = self._ways.status, self._width
        if not self._t * (1 + CAP_TOLERANCE) < status.least_cap < np.inf:
            return None  # perhaps only caps stop the water
        share = self._ways.shares(self._t, amounts, held)
        scale = float(count.dot(status.rising)) / rise  # as a program scales its duals
        prices = np.array([scale * price for price in self._prices[:width]])
        return FillingStage(self._t, prices, status.frozen), share

    def _raise_to_caps(self, share: FloatArray, rest: BoolArray, held: FloatArray) -> float | None:
        """Bring the rest to their caps on unpriced resources; return None if that does not fit."""
        unpriced = np.zeros(self._width, bool)
        unpriced[self._unpriced] = True
        table = self._table.without(~unpriced, rest)
        share[rest] = table.best[rest]
        used = (held[:, None] * share).sum(axis=0)
        fits = (used <= np.array(self._capacity) * (1 + 1e-12))[unpriced].all()
        return float(table.cap[rest].max()) if fits and table.alone[rest].all() else None
