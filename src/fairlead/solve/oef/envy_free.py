"""The greatest total value without envy: no row prefers another's bundle, scaled by weight.

With bundles z_l per unit of weight the program over distinct rows is

    max Σ_l weight_l gain_l · z_l
    s.t. gain_l · z_l >= gain_l · z_i  for all l, i,   Σ_l weight_l z_l <= capacity,   z >= 0.

Most of its many envy rows never matter. It starts with those between rows that gain alike, and
each time adds for every row the two bundles that it envies most, until no row envies another.
"""

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.certificate import certify
from fairlead.solve.classes import merge
from fairlead.solve.linear import INFINITY, new_highs
from fairlead.solve.oef.dual_prices import usable_rows

_NEIGHBOURS = 8
_WORST = 2
_TOLERANCES = (1e-10, 1e-9, 1e-8, 1e-7)
_MIN_ENVY = 1e-9
"""envy below this part of what an equal split is worth to the envious is none"""


@dataclass(frozen=True, slots=True)
class EnvyFreeSolution:
    """Amounts without envy, their total value, and prices that bound every such total."""

    amount: FloatArray  # rows × resources
    total: float
    prices: FloatArray  # resources: worth of one more, all envy taken into account
    bound: float

    @property
    def certificate(self) -> Certificate:
        """Proof, from the duals of capacities and of envy, that no total is greater."""
        return certify(self.prices, self.bound, self.total)


def solve_envy_free(
    gain: FloatArray, weight: FloatArray, capacity: FloatArray
) -> EnvyFreeSolution:
    """Return the envy-free amounts of greatest total value, a vertex in terms of distinct rows.

    ``gain`` is rows × resources (0: of no use to the row), ``weight`` is above 0. Rows with
    equal gains get amounts in proportion to their weights. The order of rows does not matter.
    """
    open_ = capacity > 0
    live = usable_rows(gain, capacity).nonzero()[0]
    amount = np.zeros_like(gain)
    prices = np.zeros(len(capacity))
    if not len(live):
        return EnvyFreeSolution(amount, 0.0, prices, 0.0)
    live = live[np.lexsort((weight[live], *gain[live].T[::-1]))]
    classes = merge(np.where(open_, gain, 0.0)[live])
    index = classes.index_of_member
    total: FloatArray = np.bincount(index, weight[live]).astype(np.float64)
    columns = open_.nonzero()[0]
    program = _Program(
        gain[np.ix_(live[classes.representative], columns)], total, capacity[columns]
    )
    bundle = program.solve()
    prices[columns] = program.prices()
    amount[np.ix_(live, columns)] = bundle[index] * weight[live][:, None]
    amount *= np.minimum(1.0, capacity / np.maximum(amount.sum(axis=0), 1e-300))
    bound = float((prices * capacity).sum())
    return EnvyFreeSolution(amount, float((gain * amount).sum()), prices, bound)


class _Program:
    """The program over distinct rows with the envy rows found necessary so far.

    Bundles are counted in units of an equal split, so that all coefficients are near 1.
    """

    def __init__(self, gain: FloatArray, weight: FloatArray, capacity: FloatArray) -> None:
        self._gain = gain
        self._part = weight / weight.sum()
        self._split = capacity / weight.sum()
        worth = gain * self._split
        self._share = worth.sum(axis=1)  # what an equal split is worth to the row
        self._value = worth / self._share[:, None]
        # The rows' values of an equal split, so that the objective is near 1 too.
        self._scale = float((self._part * self._share).sum())
        rows, self._width = gain.shape
        self._envious, self._envied = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._known = np.eye(rows, dtype=bool)
        self._highs = new_highs(presolve=False)
        self._dual = np.zeros(0)
        self._build()

    def _build(self) -> None:
        rows, width = self._value.shape
        self._highs.addRows(
            width,
            np.full(width, -INFINITY),
            np.ones(width),
            0,
            np.zeros(width, np.int32),
            np.zeros(0, np.int32),
            np.zeros(0),
        )
        cost = self._part[:, None] * self._share[:, None] / self._scale * self._value
        cells = rows * width
        self._highs.addCols(
            cells,
            -cost.ravel(),
            np.zeros(cells),
            np.full(cells, INFINITY),
            cells,
            np.arange(cells, dtype=np.int32),
            np.tile(np.arange(width, dtype=np.int32), rows),
            np.repeat(self._part, width),
        )

    def solve(self) -> FloatArray:
        """Return rows × resources → bundle per unit of weight."""
        self._add_envy_rows(*self._neighbours())
        while True:
            bundle = self._optimum()
            envious, envied = self._most_violated_envy(bundle)
            if not len(envious):
                scaled: FloatArray = bundle * self._split
                return scaled
            self._add_envy_rows(envious, envied)

    def prices(self) -> FloatArray:
        """Return the least prices that, with the envy duals, no row's value exceeds.

        The value of a resource to row l is Σ_i (λ_li gain_l - λ_il gain_i) / weight_l beyond its
        gain: having more of it satisfies its own envy and feeds that of others. Prices at least
        as great as all of these make any envy-free total at most capacity · prices.
        """
        width = self._width
        pull = np.maximum(self._dual[width:], 0.0)
        rows = len(self._part)
        own = self._part * self._share / self._scale + np.bincount(self._envious, pull, rows)
        value = own[:, None] * self._value
        np.add.at(value, self._envied, -pull[:, None] * self._value[self._envious])
        price: FloatArray = np.maximum((value / self._part[:, None]).max(axis=0), 0.0)
        price *= self._scale / self._split
        return price

    def _optimum(self) -> FloatArray:
        highs: Any = self._highs
        highs.run()
        status = highs.getModelStatus()
        for tolerance in _TOLERANCES:
            if status == highspy.HighsModelStatus.kOptimal:
                break
            # Rows that gain almost alike put the tightest tolerance out of reach.
            for side in ("primal", "dual"):
                highs.setOptionValue(f"{side}_feasibility_tolerance", tolerance)
            highs.clearSolver()
            highs.run()
            status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            name = highs.modelStatusToString(status).lower()
            raise SolveError("no envy-free optimum", status=name, n_classes=len(self._part))
        solution = highs.getSolution()
        self._dual = -np.array(solution.row_dual)
        self._dual[self._width :] *= -1.0
        bundle: FloatArray = np.maximum(np.array(solution.col_value), 0.0)
        return bundle.reshape(self._value.shape)

    def _neighbours(self) -> tuple[IntArray, IntArray]:
        """Return, both ways, the pairs of each row with those that gain most alike."""
        rows = len(self._value)
        way = self._gain / np.sqrt((self._gain**2).sum(axis=1, keepdims=True))
        count = min(_NEIGHBOURS, rows - 1)
        if count <= 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        alike = way @ way.T
        np.fill_diagonal(alike, -np.inf)
        # Rounded: a product may differ in its last bits from one machine to the next.
        near = np.argsort(-alike.round(12), axis=1, kind="stable")[:, :count].ravel()
        me = np.repeat(np.arange(rows), count)
        return np.concatenate([me, near]), np.concatenate([near, me])

    def _most_violated_envy(self, bundle: FloatArray) -> tuple[IntArray, IntArray]:
        """Return (envious, envied) rows: for each row the worst few not yet forbidden."""
        other = self._value @ bundle.T
        envy = other - other.diagonal()[:, None]
        envy[self._known] = -np.inf
        count = min(_WORST, len(envy))
        worst = np.argsort(-envy.round(12), axis=1, kind="stable")[:, :count].ravel()
        me = np.repeat(np.arange(len(envy)), count)
        envies = envy[me, worst] > _MIN_ENVY
        return me[envies], worst[envies]

    def _add_envy_rows(self, envious: IntArray, envied: IntArray) -> None:
        code = np.unique(envious * len(self._part) + envied)
        envious, envied = np.divmod(code, len(self._part))
        self._known[envious, envied] = True
        self._envious = np.concatenate([self._envious, envious])
        self._envied = np.concatenate([self._envied, envied])
        count, width = len(envious), self._width
        cell = np.arange(width)
        index = np.column_stack([envious[:, None] * width + cell, envied[:, None] * width + cell])
        value = np.column_stack([self._value[envious], -self._value[envious]])
        self._highs.addRows(
            count,
            np.zeros(count),
            np.full(count, INFINITY),
            value.size,
            np.arange(0, value.size, 2 * width, dtype=np.int32),
            index.ravel().astype(np.int32),
            value.ravel(),
        )
