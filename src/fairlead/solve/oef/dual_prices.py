"""A market in which all rows buy the same level per unit of weight, where that is cheapest.

At prices p a row buys where gain_lj / p_j is greatest, so the dual of the greatest equal level
is a concave function of the few prices alone,

    1 / t = max{ Σ_l weight_l min_j p_j / gain_lj : Σ_j capacity_j p_j = 1 }.

So prices are guessed by Newton's method on a smoothed dual; the few rows that are nearly
indifferent at these prices are left to a linear program, the others buy in one place. Its
prices either prove the answer or name the rows that chose wrongly, which then join it.
"""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, solve_lp

_SMOOTHING = tuple(2.0**-i for i in range(14))
_NEWTON_STEPS = 2
_REACH = 2.0
"""greatest step in log prices, in units of the smoothing"""
_CORE = 4
"""rows per resource that are left to the linear program at first"""
_NOISE = 1e-7
"""a part of a row's level below which the solver's answer is taken for 0"""
FREE = 1e-9
"""a resource worth less of the whole than this has no price"""


def equal_bound(
    gain: FloatArray, weight: FloatArray, capacity: FloatArray, prices: FloatArray
) -> float:
    """Return a level per weight that not everyone can exceed, proved by any prices >= 0."""
    live = usable_rows(gain, capacity)
    cost = _cost(np.where(capacity > 0, gain, 0.0)[live], prices).min(axis=1)
    need = float((weight[live] * cost).sum())
    return float((capacity * prices).sum()) / need if need > 0 else 0.0


class EqualLevelMarket:
    """Distinct rows that all buy the same level per weight, each able to use some resource."""

    def __init__(self, gain: FloatArray, weight: FloatArray, capacity: FloatArray) -> None:
        self._gain, self._weight, self._capacity = gain, weight, capacity

    def solve(self) -> tuple[FloatArray, FloatArray]:
        """Return rows × resources → amount, and the prices that prove it."""
        rows, width = self._gain.shape
        few = rows <= _CORE * width
        prices = 1.0 / self._capacity if few else self._guess()
        cost = _cost(self._gain, prices)
        choice = cost.argmin(axis=1)
        scale = equal_bound(self._gain, self._weight, self._capacity, prices)
        core = np.arange(rows) if few else self._near_indifferent_rows(cost)
        while True:
            t, bought, prices = self._settle(core, choice, scale)
            cost = _cost(self._gain, prices)
            paid = cost[np.arange(len(choice)), choice]
            wrong = cost.min(axis=1) < paid * (1 - 1e-9)
            wrong[core] = False
            if not wrong.any():
                break
            core = np.union1d(core, wrong.nonzero()[0])
        index = np.arange(len(choice))
        amount = np.zeros_like(self._gain)
        amount[index, choice] = self._weight * t / self._gain[index, choice]
        amount[core] = bought
        return self._without_rounding(amount, t, prices), prices

    def _guess(self) -> FloatArray:
        """Return prices near the optimal ones by Newton's method on a dual smoothed less and less.

        A row's least cost is replaced by a soft minimum; then what is spent on each resource
        and what its capacity is worth must agree.
        """
        with np.errstate(divide="ignore"):
            log_gain = np.log(self._gain)
        width = len(self._capacity)
        log_price = -np.log(self._capacity)
        best, least = 1.0 / self._capacity, np.inf
        for smooth in _SMOOTHING:
            for _ in range(_NEWTON_STEPS):
                score = (log_gain - log_price) / smooth
                top = score.max(axis=1, keepdims=True)
                part = np.exp(score - top)
                total = part.sum(axis=1, keepdims=True)
                part /= total
                spent = self._weight * np.exp(-smooth * (top + np.log(total)))[:, 0]
                spent /= spent.sum()
                on = (spent[:, None] * part).sum(axis=0)
                worth = self._capacity * np.exp(log_price)
                worth /= worth.sum()
                bend = np.diag(on) - (part * spent[:, None]).T @ part
                # Prices have no scale: the added ones keep their sum of logarithms.
                bend = bend * (1 + 1 / smooth) + 1.0 / width + 1e-12 * np.eye(width)
                step = np.linalg.solve(bend, on - worth)
                log_price += step * min(
                    1.0, _REACH * smooth / max(float(np.abs(step).max()), 1e-9)
                )
                log_price -= log_price.max()
            prices = np.exp(log_price)
            bound = equal_bound(self._gain, self._weight, self._capacity, prices)
            if bound < least:
                best, least = prices, bound
            else:
                log_price = np.log(best)
        return best

    def _near_indifferent_rows(self, cost: FloatArray) -> IntArray:
        """Return the rows to which a second resource is about as good as the first."""
        if cost.shape[1] < 2:
            return np.zeros(0, np.int64)
        two = np.partition(cost, 1, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            margin = np.where(two[:, 0] > 0, two[:, 1] / two[:, 0], 1.0)
        order = np.argsort(margin, kind="stable")[: _CORE * cost.shape[1]]
        return np.sort(order)

    def _settle(
        self, core: IntArray, choice: IntArray, scale: float
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return t, what the core buys, and the prices, when all others keep to their choice.

        Levels are counted in units of ``scale`` and resources in units of their capacity.
        """
        gain, width = self._gain[core], len(self._capacity)
        others = np.ones(len(choice), bool)
        others[core] = False
        need = self._weight * scale / self._gain[np.arange(len(choice)), choice]
        slope = np.bincount(choice[others], need[others], width) / self._capacity
        row, column = (gain > 0).nonzero()
        takes = self._weight[core][row] * scale / gain[row, column] / self._capacity[column]
        cells, rows = len(row), len(core)
        start = np.concatenate([[0], np.cumsum(np.full(cells, 2))]) + rows + width
        matrix = Columns(
            np.append(0, start),
            np.concatenate(
                [np.arange(rows + width), np.column_stack([row, rows + column]).ravel()]
            ),
            np.concatenate(
                [np.full(rows, -1.0), slope, np.column_stack([np.ones(cells), takes]).ravel()]
            ),
        )
        solution = solve_lp(
            LinearProgram(
                cost=np.append(-1.0, np.zeros(cells)),
                matrix=matrix,
                row_lower=np.append(np.zeros(rows), np.full(width, -INFINITY)),
                row_upper=np.append(np.zeros(rows), np.ones(width)),
                lower=np.zeros(1 + cells),
                upper=np.full(1 + cells, INFINITY),
            )
        )
        bought = np.zeros_like(gain)
        bought[row, column] = np.maximum(solution.value[1:], 0.0) * takes * self._capacity[column]
        prices = np.maximum(-solution.row_dual[rows:], 0.0) / self._capacity
        return solution.value[0] * scale, bought, prices

    def _without_rounding(self, amount: FloatArray, t: float, prices: FloatArray) -> FloatArray:
        """Return the same vertex without the solver's tolerances, where its equations tell it.

        Who buys in one place needs weight · t / gain of it. So the unknowns are t and the parts
        of the few rows that buy in several; the equations, that these parts add up to t and
        that everything with a price is sold.
        """
        part = amount * self._gain / (self._weight * t)[:, None]
        used = part > _NOISE
        split = (used.sum(axis=1) > 1).nonzero()[0]
        whole = self._weight[:, None] * t / self._capacity
        takes = np.divide(whole, self._gain, out=np.zeros_like(whole), where=used)
        worth = prices * self._capacity
        tight = (worth > FREE * worth.sum()).nonzero()[0]
        row, column = used[split].nonzero()
        index = 1 + np.arange(len(row))
        matrix = np.zeros((len(split) + len(tight), 1 + len(row)))
        matrix[: len(split), 0] = -1.0
        matrix[row, index] = 1.0
        matrix[len(split) :, 0] = np.delete(takes, split, axis=0).sum(axis=0)[tight]
        sold = len(split) + np.searchsorted(tight, column)
        priced = np.isin(column, tight)
        matrix[sold[priced], index[priced]] = takes[split[row], column][priced]
        right = np.append(np.zeros(len(split)), np.ones(len(tight)))
        solution = np.linalg.lstsq(matrix, right)[0]
        off = float(np.abs(matrix @ solution - right).max(initial=0.0))
        if off > 1e-12 or abs(solution[0] - 1.0) > _NOISE or (solution < 0).any():
            return amount
        takes[split[row], column] *= solution[1:]
        takes[np.delete(np.arange(len(takes)), split)] *= solution[0]
        sharp: FloatArray = takes * self._capacity
        return sharp


def _cost(gain: FloatArray, prices: FloatArray) -> FloatArray:
    """Return rows × resources → price of one unit of level; infinite where it gains nothing."""
    cost: FloatArray = np.divide(prices, gain, out=np.full(gain.shape, np.inf), where=gain > 0)
    return cost


def usable_rows(gain: FloatArray, capacity: FloatArray) -> BoolArray:
    """Return which rows can use some resource that there is any of."""
    live: BoolArray = np.logical_or.reduce((gain > 0) & (capacity > 0), axis=1)
    return live
