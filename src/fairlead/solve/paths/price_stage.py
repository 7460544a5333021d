"""One stage of a climb from approximate prices, exactly and without a program.

At a stage's prices nearly every class has one cheapest way to its level, so its use of the
resources follows from theta. Only for a few, the marginal classes, a further column costs no
more. Theta, the marginal classes' use of their further columns and the rest of unpriced resources
follow from one equation per resource, by Newton's method where the path bends; the prices follow
from the marginal columns and the unpriced resources. Where a marginal class would use less than
nothing, or a resource is exceeded, prices move until another class is indifferent: a step of the
dual simplex method with everything of one class eliminated. The tie rule's costs are second
objective of that method, so that its result is the only one by both.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.max_min.small_system import solve_small_system
from fairlead.solve.paths.basis_rows import IndependentRows, exchange
from fairlead.solve.paths.class_pairs import NEAR, TIED, ClassPairs
from fairlead.solve.paths.path import Path

_ROUNDING = 1e-11  # devices, relative to the capacity
_SETTLED = 1e-14  # relative: Newton's last step
_BEYOND = 1e-9  # relative: next to the stage's end
_TIE_DECIDED = 1e-11  # by the tie rule, whose perturbation is about 1e-5
_MAX_NEWTON_STEPS = 40
_MAX_PIVOTS = 100


@dataclass(frozen=True, slots=True)
class StageClasses:
    """The classes that rise in a stage, on the resources that are open to them."""

    gain: FloatArray  # classes × resources
    size: FloatArray
    count: FloatArray
    tie_cost: FloatArray  # classes × resources
    alone: BoolArray  # only one resource gives the cap
    index: IntArray  # classes → class of the path


@dataclass(frozen=True, slots=True)
class PricedStage:
    """The end of a stage: theta, the prices that prove it, levels and shares."""

    theta: float
    prices: FloatArray
    level: FloatArray
    share: FloatArray  # classes × resources


@dataclass(slots=True)
class _Marginal:
    """A further column of a class beside its pair, and the change elsewhere per device of it."""

    k: int
    column: int
    change: list[float]


class PriceStage:
    """A stage on its way from guessed prices to its end."""

    def __init__(self, classes: StageClasses, room: FloatArray, path: Path, low: float) -> None:
        self._classes, self._path, self._low = classes, path, low
        self._pairs = ClassPairs(classes.gain, classes.size, classes.tie_cost)
        self._held = classes.count * classes.size
        self._room: list[float] = room.tolist()
        self._rounding = _ROUNDING * float(room.sum())
        self._width = len(room)
        self._prices, self._tie_prices = np.zeros(self._width + 1), np.zeros(self._width + 1)
        self._unpriced: list[int] = []
        self._pegged: dict[int, tuple[int, float]] = {}
        """resources whose price is still a guess → another resource, ratio to its price"""
        self._marginal: list[_Marginal] = []
        self._amounts: list[float] = []
        """devices of each marginal column, rest of each unpriced resource, pegged exchange"""

    def find(self, theta: float, prices: FloatArray) -> PricedStage | None:
        """Return the stage's end, None if these prices do not lead to a unique one."""
        if not prices.any():
            return None
        self._prices[: self._width] = prices / float(prices.sum())
        self._go_to(max(theta, self._low))
        if not self._start():
            return None
        for _ in range(_MAX_PIVOTS):
            if not self._settle_theta():
                return None
            first = len(self._marginal) + len(self._unpriced)
            left = dict(zip(self._pegged, self._amounts[first:], strict=True))
            most = max(left, key=lambda j: abs(left[j]), default=-1)
            if most >= 0 and abs(left[most]) > self._rounding:
                leaving: list[float] | None = self._release(most, left[most])
            else:
                amounts = self._column_amounts()
                worst = min(amounts, key=amounts.__getitem__, default=None)
                if worst is None or amounts[worst] >= -self._rounding:
                    wrong = self._wrong_pairs()
                    if not len(wrong):
                        return self._finished(amounts)
                    among: IntArray = np.array(wrong)
                    if self._pairs.basic[among].any():
                        return None
                    self._pairs.choose(among, self._level, self._prices, self._tie_prices)
                    continue
                leaving = self._drop(*worst)
            if leaving is None or not self._move_prices(leaving):
                return None
        return None

    def _go_to(self, theta: float) -> None:
        index = self._classes.index
        self._theta = theta
        self._level = np.minimum(self._path.level(theta)[index], self._pairs.cap)
        self._rate = self._path.rate(theta)[index]

    def _start(self) -> bool:
        """Choose pairs and a basis at the guessed prices; find the prices that follow from it."""
        pairs, width = self._pairs, self._width
        everyone: IntArray = np.arange(pairs.classes)
        pairs.choose(everyone, self._level, self._prices, self._tie_prices)
        self._unpriced = [j for j in range(width) if self._prices[j] <= NEAR]
        if len(self._unpriced) == width:
            return False
        chosen = IndependentRows()
        for u in self._unpriced:
            chosen.add([1.0 if j == u else 0.0 for j in range(width)])
        wanted = width - 1
        tied = pairs.tied(self._level, self._prices, NEAR, NEAR)
        for k, column in tied:
            if chosen.rank >= wanted:
                break
            if pairs.basic[k]:
                continue
            change = pairs.change(k, column)
            if chosen.add(change[:width]):
                self._marginal.append(_Marginal(k, column, change))
                pairs.basic[k] = True
        dearest = int(self._prices[:width].argmax())
        for j in range(width):
            if chosen.rank < wanted and j != dearest and j not in self._unpriced:
                ratio = float(self._prices[j] / self._prices[dearest])
                if chosen.add(exchange(width, j, dearest, ratio)):
                    self._pegged[j] = dearest, ratio
        if not self._find_prices():
            return False
        # Only the choice of tied classes depends on the tie rule's prices.
        again = [k for k in dict.fromkeys(k for k, _ in tied) if not pairs.basic[k]]
        if again:
            pairs.choose(np.array(again), self._level, self._prices, self._tie_prices)
        return True

    def _settle_theta(self) -> bool:
        """Find theta and the amounts at which every resource is used up, or has an unpriced rest.

        Return False if Newton's method does not lead there.
        """
        pairs, width = self._pairs, self._width
        top = self._path.top
        for _ in range(_MAX_NEWTON_STEPS):
            used, risen = pairs.use(
                self._held, self._level, self._rate, (self._prices, self._tie_prices)
            )
            columns = self._basis_columns()
            rows = [
                [risen[j], *(column[j] for column in columns), self._room[j] - used[j]]
                for j in range(width)
            ]
            solution = solve_small_system(rows)
            if solution is None:
                return False
            step = solution[0]
            self._amounts = solution[1:]
            if abs(step) <= _SETTLED * self._theta:
                return True
            theta = min(max(self._theta + step, self._low), top)
            if theta == self._theta:
                return abs(step) <= 1e2 * _SETTLED * theta
            self._go_to(theta)
        return False

    def _wrong_pairs(self) -> list[int]:
        """Return the classes whose pairs are too dear: they left their caps after prices moved."""
        return [*dict.fromkeys(k for k, _ in self._pairs.tied(self._level, self._prices, -TIED))]

    def _basis_columns(self) -> list[list[float]]:
        """Return resources' use by each marginal column, unpriced rest and pegged exchange."""
        return [marginal.change for marginal in self._marginal] + self._fixed_rows()

    def _fixed_rows(self) -> list[list[float]]:
        width = self._width
        rows = [[1.0 if j == u else 0.0 for j in range(width)] for u in self._unpriced]
        rows += [exchange(width, j, o, ratio) for j, (o, ratio) in self._pegged.items()]
        return rows

    def _column_amounts(self) -> dict[tuple[int, int], float]:
        """Return (class, column) → devices of marginal classes; class -1 is the unpriced rest."""
        pairs = self._pairs
        amounts: dict[tuple[int, int], float] = {}
        for marginal, amount in zip(self._marginal, self._amounts, strict=False):
            k = marginal.k
            a, b = pairs.pair[:, k].tolist()
            if (k, a) not in amounts:
                top, bottom = pairs.top[k], pairs.bottom[k]
                part, held = (self._level[k] - bottom) / (top - bottom), float(self._held[k])
                amounts[k, a] = float(part) * held
                amounts[k, b] = float(1.0 - part) * held
            for column, change in enumerate(marginal.change):
                if change:
                    amounts[k, column] = amounts.get((k, column), 0.0) + change * amount
        for u, left in zip(self._unpriced, self._amounts[len(self._marginal) :], strict=False):
            amounts[-1, u] = left
        return amounts

    def _release(self, column: int, left: float) -> list[float]:
        """Take a pegged exchange out of the basis; return the column that is to cost more."""
        other, ratio = self._pegged.pop(column)
        sign = 1.0 if left < 0 else -1.0
        return [sign * more for more in exchange(self._width, column, other, ratio)]

    def _drop(self, k: int, column: int) -> list[float] | None:
        """Take a column out of the basis; return its use of the resources, which is to cost more.

        None if the class's remaining columns span no level.
        """
        width = self._width
        if k < 0:
            self._unpriced.remove(column)
            return [1.0 if j == column else 0.0 for j in range(width)]
        pairs = self._pairs
        gain = pairs.gain[k].tolist()
        further = [other.column for other in self._marginal if other.k == k]
        rest = [c for c in (*pairs.pair[:, k].tolist(), *further) if c != column]
        a = max(rest, key=gain.__getitem__)
        b = min(rest, key=gain.__getitem__)
        if gain[a] == gain[b]:
            return None
        self._marginal = [other for other in self._marginal if other.k != k]
        pairs.set_pair(k, a, b)
        further = [c for c in rest if c not in (a, b)]
        pairs.basic[k] = bool(further)
        self._marginal += [_Marginal(k, c, pairs.change(k, c)) for c in further]
        return pairs.change(k, column)[:width]

    def _move_prices(self, leaving: list[float]) -> bool:
        """Raise the cost of ``leaving`` until a class is indifferent or another price is 0."""
        pairs, width = self._pairs, self._width
        rows = [[*row[:width], 0.0] for row in self._basis_columns()]
        rows += [[*leaving, 1.0], [*([1.0] * width), 0.0]]
        solution = solve_small_system(rows)
        if solution is None:
            return False
        empty = [j for j in range(width) if solution[j] < -NEAR and j not in self._unpriced]
        until = [float(self._prices[j]) / -solution[j] for j in empty]
        least, entry, second = pairs.next_marginal(
            self._level,
            (self._prices, self._tie_prices, np.array([*solution, 0.0])),
            [(marginal.k, marginal.column) for marginal in self._marginal],
            min(until, default=np.inf),
        )
        if least == np.inf:
            return False
        emptied = [j for j, when in zip(empty, until, strict=True) if when <= least + TIED]
        tie_until = [float(self._tie_prices[j]) / -solution[j] for j in emptied]
        if entry is None or (emptied and min(tie_until) <= second):
            self._unpriced.append(emptied[tie_until.index(min(tie_until))])
        else:
            k, column = entry
            self._marginal.append(_Marginal(k, column, pairs.change(k, column)))
            pairs.basic[k] = True
        return self._find_prices()

    def _find_prices(self) -> bool:
        """Find the prices at which every marginal column costs as much as the pair beside it."""
        width = self._width
        tie_cost = self._pairs.tie_cost
        rows, tie_rows = [], []
        for marginal in self._marginal:
            change = marginal.change
            rows.append([*change[:width], 0.0])
            cost = tie_cost[marginal.k].tolist()
            tie_rows.append(
                [*change[:width], -sum(c * t for c, t in zip(change, cost, strict=True))]
            )
        for row in self._fixed_rows():
            rows.append([*row, 0.0])
            tie_rows.append([*row, 0.0])
        prices = solve_small_system([*rows, [*([1.0] * width), 1.0]])
        tie_prices = solve_small_system([*tie_rows, [*([1.0] * width), 0.0]])
        if prices is None or tie_prices is None or min(prices) < -TIED:
            return False
        self._prices = np.array([*(p if p > TIED else 0.0 for p in prices), 0.0])
        self._tie_prices = np.array([*tie_prices, 0.0])
        return True

    def _finished(self, amounts: dict[tuple[int, int], float]) -> PricedStage | None:
        """Return the stage, None if its stopped classes may have other shares."""
        pairs, width = self._pairs, self._width
        if not self._is_unique():
            return None
        share = np.zeros((pairs.classes, width + 1))
        rows: IntArray = np.arange(pairs.classes)
        upper = pairs.shares(self._level)
        share[rows, pairs.pair[1]] = 1.0 - upper
        share[rows, pairs.pair[0]] = upper
        for (k, column), amount in amounts.items():
            if k >= 0:
                share[k, column] = amount / self._held[k]
        share = np.maximum(share[:, :width], 0.0)
        used = (self._held[:, None] * share).sum(axis=0)
        if (used > np.array(self._room) + 1e2 * self._rounding).any():
            return None
        waiting = (self._level <= 0).nonzero()[0]
        if len(waiting):
            pairs.choose(waiting, self._level, self._prices, self._tie_prices)
        # Past a kink of the path classes may rise at no cost: then the stage ends further on.
        beyond = self._path.rate(self._theta * (1 + _BEYOND))[self._classes.index]
        risen = pairs.use(self._held, self._level, beyond)[1]
        prices = self._prices[:width]
        worth = sum(p * r for p, r in zip(prices.tolist(), risen, strict=False))
        rising = float((self._classes.count * beyond).sum())
        if not worth > TIED * rising:
            return None
        # As a program scales its duals.
        return PricedStage(self._theta, prices * (rising / worth), self._level, share)

    def _is_unique(self) -> bool:
        """Return whether stopped classes have no other shares by costs and tie rule.

        Shares that tie at these prices must also use the same of each unpriced resource, since the
        next stages depend on its rest.
        """
        pairs = self._pairs
        capped = self._level >= pairs.cap * (1 - TIED)
        if (capped & ~self._classes.alone).any():
            return False
        known = {(marginal.k, marginal.column) for marginal in self._marginal}
        tied = [at for at in pairs.tied(self._level, self._prices, TIED, TIED) if at not in known]
        if not tied:
            return True
        if pairs.least_tie_spare(self._tie_prices, tied) <= _TIE_DECIDED:
            return False
        if not self._unpriced:
            return True
        return all(self._keeps_unpriced(*entry) for entry in tied)

    def _keeps_unpriced(self, k: int, column: int) -> bool:
        """Return whether the use of unpriced resources is the same with a tied column."""
        width = self._width
        risen = self._pairs.use(self._held, self._level, self._rate)[1]
        columns = self._basis_columns()
        change = self._pairs.change(k, column)
        rows = [[risen[j], *(c[j] for c in columns), change[j]] for j in range(width)]
        solution = solve_small_system(rows)
        if solution is None:
            return False
        first = 1 + len(self._marginal)
        return all(abs(more) <= NEAR for more in solution[first : first + len(self._unpriced)])
