"""The persistent linear program over options, solved by HiGHS from its last basis.

Its rows are those of ``OptionProblem.matrix``; a level row reads

    Σ_o gain_ok y_o - n_k rate_k · rise >= n_k level_k,

so that ``rise`` is how far all levels go up together, each at its own rate. Only some options
are columns at first; others are added when their reduced costs say that they pay.
"""

import math
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import INFINITY, PRIMAL, new_highs, rerun_highs, without_perturbation
from fairlead.solve.options.basis import Basics, Keys, LastBasis
from fairlead.solve.options.bounds import Bounds
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.vertex import OptionVertex

_NONE = np.zeros(0, np.int32)
_REDUCED_COST = 1e-9
# Up to so many options all are columns from the start.
_ALL_COLUMNS = 4000
_ADDED = 500
# The columns before the options: the rise, and what is lacking of the levels.
_RISE, _LACK, _FIXED = 0, 1, 2
_BASIC, _LOWER = highspy.HighsBasisStatus.kBasic, highspy.HighsBasisStatus.kLower


class OptionProgram:
    """One problem's program: set what levels are asked for, then maximise something."""

    def __init__(
        self,
        problem: OptionProblem,
        start: "WarmProgram | None" = None,
        theta_rate: FloatArray | None = None,
        *,
        levels: bool = True,
    ) -> None:
        """Begin with the last basis, if there is one; without ``levels``, ask for none."""
        self.problem, self._levels = problem, levels
        width, classes, count = len(problem.capacity), problem.classes, problem.count
        self._first_level = width
        lower = [np.full(width, -INFINITY), np.zeros(classes), np.full(classes, -INFINITY)]
        upper = [problem.capacity, np.full(classes, INFINITY), count]
        if problem.extra is not None:
            lower.append(np.maximum(problem.extra.lower, -INFINITY))
            upper.append(np.minimum(problem.extra.upper, INFINITY))
        self._lower, self._upper = np.concatenate(lower), np.concatenate(upper)
        self._highs = new_program_highs() if start is None else start.highs
        rows = len(self._lower)
        none = np.zeros(rows, np.int32)
        self._highs.addRows(rows, self._lower, self._upper, 0, none, _NONE, np.zeros(0))
        self._water = np.zeros(classes) if theta_rate is None else count * theta_rate
        at = self._water.nonzero()[0]
        self._highs.addCol(0.0, 0.0, 0.0, len(at), (width + at).astype(np.int32), -self._water[at])
        self._highs.addCol(0.0, 0.0, 0.0, 0, _NONE, np.zeros(0))
        self._cost = np.zeros(len(problem.resource))
        self._column_of = np.full(len(problem.resource), -1)
        self._options: IntArray = np.zeros(0, np.int64)
        self._floor = np.zeros(classes)
        self._among: BoolArray | None = None
        """options that may become columns, if not all"""
        self._kept: list[FloatArray] = []
        self._dual = np.zeros(0)
        self._priced = np.zeros(0)
        """options → surplus at the last optimum"""
        if start is None or start.basis is None:
            self._activate(_first_columns(problem))
        else:
            begin = ~problem.paired | start.basis.columns(start.options)
            self._activate(begin.nonzero()[0])
            (rise, *column), row = start.basis.statuses(
                start.classes, start.options[self._options], width
            )
            basis = highspy.HighsBasis()
            basis.col_status = [rise, _LOWER, *column]
            basis.row_status = [*row, *[_BASIC] * (rows - len(row))]
            basis.valid, basis.alien = True, True
            self._highs.setBasis(basis)

    def bounds_of(self, options: IntArray) -> Bounds:
        """Return the bounds of some options, and of all rows without floors."""
        none, most = np.zeros(len(options)), np.full(len(options), INFINITY)
        return Bounds(none, most, self._lower, self._upper)

    def basics(self) -> Basics:
        """Return the basic columns and rows of the last solve."""
        _, variable = self._highs.getBasicVariables()
        column, row = variable[variable >= 0], -1 - variable[variable < 0]
        rows = np.zeros(len(self._lower) + len(self._kept), bool)
        rows[row] = True
        options = self._options[column[column >= _FIXED] - _FIXED]
        keyed = len(self.problem.capacity) + 2 * self.problem.classes
        return Basics(bool((column == _RISE).any()), options, rows[:keyed])

    def raise_levels(
        self, level: FloatArray, rate: FloatArray, least: float, most: float
    ) -> OptionVertex | None:
        """Return the greatest rise between the bounds, or None if not even the least fits."""
        problem, self._among = self.problem, None
        self._ask(problem.count * level, problem.count * rate)
        weight = problem.count * rate / np.maximum(problem.cap, 1e-300)
        # Makes a device's price about 1 in any unit of levels.
        total = float(weight[problem.cap > 0].sum())
        scale = 2.0 ** math.frexp(total)[1] if total > 0 else 1.0
        self._set_costs(np.zeros(len(self._cost)))
        self._highs.changeColCost(_RISE, -scale)
        self._highs.changeColBounds(_RISE, least, most)
        return self._vertex(scale) if self._optimal() else None

    def minimise(
        self, cost: FloatArray, level: FloatArray, among: BoolArray | None = None
    ) -> OptionVertex | None:
        """Return the vertex of least Σ cost · y with these levels, None if they do not fit.

        ``among`` (options): no other options become columns; with these levels they have no time.
        """
        self._among = among
        self._ask(self.problem.count * level, np.zeros(self.problem.classes))
        self._set_costs(cost)
        self._highs.changeColCost(_RISE, 0.0)
        self._highs.changeColBounds(_RISE, 0.0, 0.0)
        return self._vertex(1.0) if self._optimal() else None

    def minimise_within(
        self, cost: FloatArray, options: IntArray, bounds: Bounds
    ) -> FloatArray | None:
        """Return the times of these options with the least Σ cost · y; all others get none.

        ``bounds`` are those of these options and of all rows; they replace the program's
        bounds permanently. None if HiGHS finds no such times.
        """
        highs = self._highs
        missing = options[self._column_of[options] < 0]
        if len(missing):
            self._activate(missing)
        column, count = self._column_of[options], len(self._options)
        lower, upper = np.zeros(count), np.zeros(count)
        lower[column], upper[column] = bounds.lower, bounds.upper
        index = np.arange(_FIXED, _FIXED + count, dtype=np.int32)
        highs.changeColsBounds(count, index, lower, upper)
        rows = np.arange(len(bounds.row_lower), dtype=np.int32)
        highs.changeRowsBounds(len(rows), rows, bounds.row_lower, bounds.row_upper)
        self._set_costs(cost)
        if rerun_highs(highs) != highspy.HighsModelStatus.kOptimal:
            return None
        time: FloatArray = np.array(highs.getSolution().col_value)[_FIXED + column]
        return time

    def keep(self, value: FloatArray, least: float) -> None:
        """Demand Σ value · y >= least from now on, as a row of its own."""
        held = value[self._options]
        at = held.nonzero()[0]
        self._highs.addRow(
            least, INFINITY, len(at), (_FIXED + at).astype(np.int32), held[at].astype(float)
        )
        self._kept.append(value)

    def _ask(self, floor: FloatArray, water: FloatArray) -> None:
        highs, first = self._highs, self._first_level
        for k in (water != self._water).nonzero()[0].tolist():
            highs.changeCoeff(first + k, _RISE, -float(water[k]))
        self._water = water
        changed = (floor != self._floor).nonzero()[0]
        if len(changed):
            index = (first + changed).astype(np.int32)
            top = np.full(len(index), INFINITY)
            highs.changeRowsBounds(len(index), index, floor[changed], top)
            self._floor = floor

    def _set_costs(self, cost: FloatArray) -> None:
        changed = (cost != self._cost)[self._options].nonzero()[0]
        if len(changed):
            index = (_FIXED + changed).astype(np.int32)
            self._highs.changeColsCost(len(index), index, cost[self._options[changed]])
        self._cost = cost

    def _activate(self, options: IntArray) -> None:
        columns = self.problem.columns(options, levels=self._levels)
        begin, row, value = columns.start, columns.row, columns.value
        first = len(self._lower)
        if self._kept:
            parts = [(row, value, np.repeat(np.arange(len(options)), np.diff(begin)))]
            for place, kept in enumerate(self._kept):
                at = kept[options].nonzero()[0]
                parts.append((np.full(len(at), first + place), kept[options[at]], at))
            row, value, of = (np.concatenate(p) for p in zip(*parts, strict=True))
            order = np.argsort(of, kind="stable")
            row, value = row[order], value[order]
            begin = np.searchsorted(of[order], np.arange(len(options) + 1))
        self._highs.addCols(
            len(options),
            self._cost[options],
            np.zeros(len(options)),
            np.full(len(options), INFINITY),
            len(value),
            begin[:-1].astype(np.int32),
            row.astype(np.int32),
            value,
        )
        self._column_of[options] = len(self._options) + np.arange(len(options))
        self._options = np.append(self._options, options)

    def _optimal(self) -> bool:
        """Solve over all options; tell whether there is an optimum or nothing fits."""
        while True:
            status = rerun_highs(self._highs)
            if status == highspy.HighsModelStatus.kInfeasible:
                if len(self._options) == len(self._cost) or not self._add_columns_until_feasible():
                    return False
                continue
            if status != highspy.HighsModelStatus.kOptimal:
                name = self._highs.modelStatusToString(status).lower()
                raise SolveError(
                    "options were not solved", status=name, n_classes=self.problem.classes
                )
            if not self._add_profitable_columns(self._cost):
                return True

    def _add_columns_until_feasible(self) -> bool:
        """Add columns until the levels asked for fit; tell whether that helped."""
        highs, problem, before = self._highs, self.problem, len(self._options)
        costs = self._cost
        rise = highs.getLp().col_cost_[_RISE]
        for k in self._floor.nonzero()[0].tolist():
            highs.changeCoeff(self._first_level + k, _LACK, float(self._floor[k]))
        self._set_costs(np.zeros(len(costs)))
        highs.changeColCost(_RISE, 0.0)
        highs.changeColCost(_LACK, float(2.0 ** math.frexp(problem.count.sum())[1]))
        highs.changeColBounds(_LACK, 0.0, 1.0)
        fits = False
        while rerun_highs(self._highs) == highspy.HighsModelStatus.kOptimal:
            if highs.getSolution().col_value[_LACK] <= 1e-12:
                fits = True
                break
            if not self._add_profitable_columns(self._cost):
                break
        highs.changeColBounds(_LACK, 0.0, 0.0)
        highs.changeColCost(_LACK, 0.0)
        for k in self._floor.nonzero()[0].tolist():
            highs.changeCoeff(self._first_level + k, _LACK, 0.0)
        highs.changeColCost(_RISE, rise)
        self._set_costs(costs)
        return fits and len(self._options) > before

    def _add_profitable_columns(self, cost: FloatArray) -> bool:
        """Add the options that would pay most at the present duals; tell whether any would."""
        self._dual = np.array(self._highs.getSolution().row_dual)
        self._priced = self._surplus(cost, self._dual)
        if len(self._options) == len(self._cost):
            return False
        paying = (self._priced < -_REDUCED_COST).nonzero()[0]
        paying = paying[self._column_of[paying] < 0]
        if self._among is not None:
            paying = paying[self._among[paying]]
        if not len(paying):
            return False
        if len(paying) > _ADDED:
            paying = paying[np.argsort(self._priced[paying], kind="stable")[:_ADDED]]
        self._activate(paying)
        return True

    def _surplus(self, cost: FloatArray, dual: FloatArray) -> FloatArray:
        rows = len(self._lower)
        surplus = cost - self.problem.priced(dual[:rows])
        for value, price in zip(self._kept, dual[rows:].tolist(), strict=True):
            surplus -= price * value
        return surplus

    def _vertex(self, scale: float) -> OptionVertex:
        value, dual = np.array(self._highs.getSolution().col_value), self._dual
        time = np.zeros(len(self._cost))
        time[self._options] = value[_FIXED:]
        width, classes = len(self.problem.capacity), self.problem.classes
        return OptionVertex(
            float(value[_RISE]),
            time,
            -dual[:width],
            dual[width : width + classes],
            -dual[width + classes : width + 2 * classes],
            -dual[width + 2 * classes : len(self._lower)],
            self._priced,
            scale,
        )


@dataclass(frozen=True, slots=True, eq=False)
class WarmProgram:
    """The start of a program: an empty HiGHS, the last basis, and the keys that identify rows."""

    highs: Any
    basis: LastBasis | None
    classes: Keys
    """classes → key"""
    options: Keys
    """options → key"""


def new_program_highs(*, perturbed: bool = True) -> Any:
    """Return a HiGHS without a model, for programs over options, with or without perturbation."""
    highs = new_highs(presolve=False)
    # Nothing is asked for at first, so that no time at all is a feasible start.
    highs.setOptionValue("simplex_strategy", PRIMAL)
    if not perturbed:
        without_perturbation(highs)
    return highs


def _first_columns(problem: OptionProblem) -> IntArray:
    """Return the options to begin with: all if they are few, else those of one member."""
    options = len(problem.resource)
    if options <= _ALL_COLUMNS:
        return np.arange(options)
    return (~problem.paired).nonzero()[0]
