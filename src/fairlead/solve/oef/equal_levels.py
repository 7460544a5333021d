"""Equal levels for everyone: divide resources so that all get the same value per unit of weight.

The program is

    max t   s.t.  Σ_j gain_lj x_lj = weight_l t,   Σ_l x_lj <= capacity_j,   x >= 0,

max-min without a limit on what one row may hold. One market gives the greatest level that all
can have; rows that its exhausted resources did not stop continue in another.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import FloatArray
from fairlead.solve.certificate import certify
from fairlead.solve.classes import merge
from fairlead.solve.oef.dual_prices import (
    FREE,
    EqualLevelMarket,
    equal_bound,
    usable_rows,
)


@dataclass(frozen=True, slots=True)
class EqualLevelSolution:
    """Amounts that give equal levels, and more for rows that no resource stops."""

    gain: FloatArray
    weight: FloatArray
    capacity: FloatArray
    amount: FloatArray  # rows × resources
    prices: FloatArray  # resources: what proves the least level

    @property
    def level(self) -> FloatArray:
        """rows → value reached per unit of weight."""
        value: FloatArray = (self.gain * self.amount).sum(axis=1)
        return value / self.weight

    @property
    def least(self) -> float:
        """The least level of those who can use anything; 0 if nobody can."""
        live = usable_rows(self.gain, self.capacity)
        return float(self.level[live].min()) if live.any() else 0.0

    @property
    def certificate(self) -> Certificate:
        """Proof, recomputed from prices alone, that the least level cannot be raised."""
        bound = equal_bound(self.gain, self.weight, self.capacity, self.prices)
        return certify(self.prices, bound, self.least)


def solve_equal(gain: FloatArray, weight: FloatArray, capacity: FloatArray) -> EqualLevelSolution:
    """Return amounts with the greatest equal level, a vertex in terms of distinct rows.

    ``gain`` is rows × resources (0: of no use to the row), ``weight`` is above 0. Rows with
    equal gains get amounts in proportion to their weights; distinct rows and resources have
    together at least one more than there are amounts above 0. Where some rows cannot use the
    resources that stop others, they continue to the greatest level that the remaining resources
    allow, and so on. Neither the order of rows nor an earlier solve matters.
    """
    amount = np.zeros_like(gain)
    open_ = capacity > 0
    live = usable_rows(gain, capacity).nonzero()[0]
    live = live[np.lexsort((weight[live], *gain[live].T[::-1]))]
    classes = merge(np.where(open_, gain, 0.0)[live])
    total: FloatArray = np.bincount(classes.index_of_member, weight[live]).astype(np.float64)
    by_class, prices = _stages(gain[live[classes.representative]] * open_, total, capacity)
    part = weight[live] / total[classes.index_of_member]
    amount[live] = by_class[classes.index_of_member] * part[:, None]
    used = amount.sum(axis=0)
    amount *= np.minimum(1.0, capacity / np.maximum(used, 1e-300))
    return EqualLevelSolution(gain, weight, capacity, amount, prices)


def _stages(
    gain: FloatArray, weight: FloatArray, capacity: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return classes × resources → amount at the lexicographically greatest levels, and prices."""
    amount = np.zeros_like(gain)
    first = np.zeros(len(capacity))
    free, usable = np.arange(len(gain)), capacity > 0
    while len(free):
        columns = usable.nonzero()[0]
        market = EqualLevelMarket(gain[np.ix_(free, columns)], weight[free], capacity[columns])
        found, prices = market.solve()
        amount[free] = 0.0
        amount[np.ix_(free, columns)] = found
        if not first.any():
            first[columns] = prices
        worth = prices * capacity[columns]
        usable[columns[worth > FREE * worth.sum()]] = False
        # A row that can still use an unpriced resource was not stopped, and uses nothing else.
        free = free[(gain[free] * usable > 0).any(axis=1)]
    return amount, first
