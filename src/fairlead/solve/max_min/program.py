"""The persistent linear program behind the water-filling of a moderate number of classes.

With class totals y_kj = n_k x_kj the program of one stage is

    max t   s.t.  Σ_j gain_kj y_kj - n_k t >= 0     k follows the water
                  Σ_j gain_kj y_kj >= n_k l_k       k is held at level l_k
                  Σ_j y_kj <= n_k,   Σ_k size_k y_kj <= capacity_j,   y >= 0,

so that a change of a class's count touches one coefficient and one bound, and HiGHS starts
from its last basis. HiGHS's tolerances are absolute, so members are counted in units that keep
y moderate: with thousands of members a class they would be below the rounding of y.
"""

import math
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import INFINITY, new_highs, rerun_highs

_NONE = np.zeros(0, np.int32)
# Levels are known up to rounding; all of them held exactly may just not fit.
_SLACKS = (1e-12, 1e-10, 1e-9, 1e-7)
# Members of a class, on average, up to which they are counted one by one.
_MAX_MEMBERS = 16.0
_FITS = 1e-11  # relative: held levels fit


@dataclass(slots=True)
class Vertex:
    """An optimal vertex of a stage's program; duals are scaled to sum to about the members."""

    t: float
    total: FloatArray  # classes × resources: y
    prices: FloatArray  # resources
    level_price: FloatArray  # classes: dual of the level row, >= 0
    dual: FloatArray  # the columns' duals, then the rows' in reverse: so that row r is at -1 - r


class StageProgram:
    """The program of a stage over a growing list of classes, solved from the last basis."""

    def __init__(self, capacity: FloatArray) -> None:
        self.width = len(capacity)
        self.size = 0
        self._highs = new_highs(presolve=False)
        self._highs.addRows(
            self.width,
            np.full(self.width, -INFINITY),
            capacity,
            0,
            np.zeros(self.width, np.int32),
            _NONE,
            np.zeros(0),
        )
        self._highs.addCol(0.0, 0.0, INFINITY, 0, _NONE, np.zeros(0))
        self._capacity = capacity
        self._slope = np.zeros(self.width)  # what members outside use more per unit of t
        self._unit = 1.0  # members are counted in this unit, a power of two
        self._objective = 0.0
        self._ceiling = INFINITY
        self._members = 0.0
        self._water = np.zeros(0)  # minus the coefficient of t in each level row
        self._floor = np.zeros(0)  # right-hand side of each level row
        self._time = np.zeros(0)  # right-hand side of each time row

    def add(self, gain: FloatArray, size: FloatArray) -> None:
        """Append classes, without members as yet."""
        more, width = gain.shape
        first = self.width + 2 * self.size
        lower = np.tile([0.0, -INFINITY], more)
        upper = np.tile([INFINITY, 0.0], more)
        self._highs.addRows(
            2 * more, lower, upper, 0, np.zeros(2 * more, np.int32), _NONE, np.zeros(0)
        )
        row = np.empty((more, width, 3), np.int32)
        row[:, :, 0] = np.arange(width)
        row[:, :, 1] = first + 2 * np.arange(more)[:, None]
        row[:, :, 2] = row[:, :, 1] + 1
        value = np.ones((more, width, 3))
        value[:, :, 0] = size[:, None]
        value[:, :, 1] = gain
        cells = more * width
        self._highs.addCols(
            cells,
            np.zeros(cells),
            np.zeros(cells),
            np.where(gain > 0, INFINITY, 0.0).ravel(),
            3 * cells,
            np.arange(0, 3 * cells, 3, dtype=np.int32),
            row.ravel(),
            value.ravel(),
        )
        self.size += more
        for name in ("_water", "_floor", "_time"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more)]))

    def set_capacity(self, capacity: FloatArray) -> None:
        """Change the capacities of the resources."""
        self._capacity = capacity
        rows = np.arange(self.width, dtype=np.int32)
        none = np.full(self.width, -INFINITY)
        self._highs.changeRowsBounds(self.width, rows, none, capacity / self._unit)

    def set_outside_use(self, room: FloatArray, slope: FloatArray, members: float) -> None:
        """Account for members outside the program, which leave ``room - slope · t``."""
        self.set_capacity(room)
        self._members = members
        self._set_slope(slope)

    def _set_slope(self, slope: FloatArray) -> None:
        self._slope = slope
        for j, value in enumerate((slope / self._unit).tolist()):
            self._highs.changeCoeff(j, 0, value)

    def _choose_unit(self, count: FloatArray) -> None:
        """Count members in a unit that keeps their mean number in a class moderate."""
        mean = float(count.sum()) / max(int(np.count_nonzero(count)), 1)
        unit = 2.0 ** math.frexp(mean / _MAX_MEMBERS)[1] if mean > _MAX_MEMBERS else 1.0
        if unit == self._unit:
            return
        self._unit = unit
        self.set_capacity(self._capacity)
        self._set_slope(self._slope)

    def maximise_level(
        self,
        count: FloatArray,
        held: FloatArray,
        follows: BoolArray | FloatArray,
        ceiling: float,
    ) -> Vertex | None:
        """Return a vertex with the greatest t <= ceiling, or None if the held levels do not fit.

        ``held`` is the level of each class that does not follow the water (0: none). In general
        a class is to reach ``held + follows · t``.
        """
        self._choose_unit(count)
        water = count * follows
        self._sync(count, water, count * held)
        # A power of two near the number of members keeps duals near 1 and rarely changes.
        members = float(water.sum()) + self._members
        objective = -(2.0 ** math.frexp(max(members, 1.0))[1]) / self._unit
        if objective != self._objective:
            self._objective = objective
            self._highs.changeColCost(0, objective)
        if ceiling != self._ceiling:
            self._ceiling = ceiling
            self._highs.changeColBounds(0, 0.0, ceiling)
        status = rerun_highs(self._highs)
        if status == highspy.HighsModelStatus.kOptimal:
            return self._vertex()
        if status != highspy.HighsModelStatus.kInfeasible and self._fits(count, held):
            name = self._highs.modelStatusToString(status).lower()
            raise SolveError("a stage was not solved", status=name, n_classes=self.size)
        return None

    def _fits(self, count: FloatArray, held: FloatArray) -> bool:
        """Return whether the held levels fit, by a program that always has an optimum.

        HiGHS sometimes stops at an infeasible program without a proof that it is infeasible.
        """
        if self._slope.any():
            return True  # members outside depend on t, so nothing is proved
        self._ceiling = 1.0
        self._highs.changeColBounds(0, 0.0, 1.0)
        self._sync(count, count * held, np.zeros(self.size))
        if rerun_highs(self._highs) != highspy.HighsModelStatus.kOptimal:
            return True
        scale = float(self._highs.getSolution().col_value[0])
        return scale >= 1.0 - _FITS

    def least_cost(
        self, count: FloatArray, level: FloatArray, cost: FloatArray, t: float = 0.0
    ) -> Vertex:
        """Return the vertex that keeps every level, and t, at the least Σ cost · y."""
        self._ceiling = -1.0
        self._highs.changeColBounds(0, t, t)
        self._choose_unit(count)
        columns = np.arange(1 + cost.size, dtype=np.int32)
        self._highs.changeColsCost(len(columns), columns, np.append(0.0, cost.ravel()))
        for slack in _SLACKS:
            self._sync(count, np.zeros(self.size), count * level * (1.0 - slack))
            if rerun_highs(self._highs) == highspy.HighsModelStatus.kOptimal:
                break
        else:
            raise SolveError("levels were lost", status="infeasible", n_classes=self.size)
        vertex = self._vertex()
        self._highs.changeColsCost(len(columns), columns, np.zeros(len(columns)))
        self._objective = 0.0
        return vertex

    def loose(self, absent: BoolArray, fixed: BoolArray) -> BoolArray:
        """Return, in the order of ``Vertex.dual``, what could differ between equal levels.

        That is every share and every slack of a resource or of a class's time, except those of
        absent classes and the shares that are ``fixed`` at 0.
        """
        rows = np.ones(self.width + 2 * self.size, bool)
        rows[self.width :: 2] = False
        rows[self.width + 1 :: 2] = ~absent
        columns = ~(fixed | absent[:, None])
        return np.concatenate([[False], columns.ravel(), rows[::-1]])

    def any_nonbasic(self, loose: BoolArray) -> bool:
        """Return whether something loose is outside the last basis."""
        # HiGHS writes row r of a basis as -1 - r, which is its place in ``loose`` too.
        basic = loose[self._highs.getBasicVariables()[1]]
        return int(np.count_nonzero(basic)) < int(np.count_nonzero(loose))

    def _sync(self, count: FloatArray, water: FloatArray, floor: FloatArray) -> None:
        highs, first = self._highs, self.width
        count, water, floor = count / self._unit, water / self._unit, floor / self._unit
        for k in (water != self._water).nonzero()[0].tolist():
            highs.changeCoeff(first + 2 * k, 0, -float(water[k]))
        self._water = water
        rows = (floor != self._floor).nonzero()[0]
        if len(rows):
            self._floor = floor
            index = (first + 2 * rows).astype(np.int32)
            highs.changeRowsBounds(len(rows), index, floor[rows], np.full(len(rows), INFINITY))
        rows = (count != self._time).nonzero()[0]
        if len(rows):
            self._time = count
            index = (first + 1 + 2 * rows).astype(np.int32)
            highs.changeRowsBounds(len(rows), index, np.full(len(rows), -INFINITY), count[rows])

    def _vertex(self) -> Vertex:
        solution: Any = self._highs.getSolution()
        value = np.array(solution.col_value)
        dual = np.array(solution.col_dual + solution.row_dual[::-1])
        rows = dual[: len(value) - 1 : -1]
        return Vertex(
            t=float(value[0]),
            total=value[1:].reshape(self.size, self.width) * self._unit,
            prices=np.maximum(-rows[: self.width], 0.0),
            level_price=rows[self.width :: 2],
            dual=dual,
        )
