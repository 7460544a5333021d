"""A linear program given as arrays, solved by HiGHS."""

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError

INFINITY = float(highspy.kHighsInf)
_TOLERANCES = (1e-10, 1e-9, 1e-8)
_DUAL, PRIMAL = 1, 4
"""HiGHS's numbers of the simplex methods"""
_PERTURBATION = "primal_simplex_bound_perturbation_multiplier"
STEP_LIMIT = 20_000
"""steps of a program without perturbed bounds; the longest seen took some hundreds"""
_DECIDED = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
_TOO_LONG = highspy.HighsModelStatus.kIterationLimit

# HiGHS accepts no tolerance below 1e-10; duals decide who is bottlenecked, so they get that.
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("output_flag", False),
    ("threads", 1),
    ("random_seed", 0),
    ("primal_feasibility_tolerance", 1e-10),
    ("dual_feasibility_tolerance", 1e-10),
)


@dataclass(frozen=True, slots=True)
class Columns:
    """A sparse matrix by columns: entries ``start[c]`` up to ``start[c + 1]`` are column c."""

    start: IntArray
    row: IntArray
    value: FloatArray

    @classmethod
    def dense(cls, matrix: FloatArray) -> "Columns":
        """Return the non-zero entries of ``matrix`` (rows × columns)."""
        column, row = np.nonzero(matrix.T)
        start = np.searchsorted(column, np.arange(matrix.shape[1] + 1))
        return cls(start, row, matrix[row, column])

    def columns(self, chosen: IntArray) -> "Columns":
        """Return some of the columns, in this order."""
        length = np.diff(self.start)[chosen]
        start = np.append(0, np.cumsum(length))
        entry = np.arange(start[-1]) + np.repeat(self.start[chosen] - start[:-1], length)
        return Columns(start, self.row[entry], self.value[entry])

    def with_rows(self, below: "Columns") -> "Columns":
        """Return the columns with further rows of the same columns."""
        column = [np.repeat(np.arange(len(m.start) - 1), np.diff(m.start)) for m in (self, below)]
        order = np.argsort(np.concatenate(column), kind="stable")
        row = np.concatenate([self.row, below.row])[order]
        value = np.concatenate([self.value, below.value])[order]
        return Columns(self.start + below.start, row, value)

    def priced(self, dual: FloatArray) -> FloatArray:
        """Return columns → what the rows' duals say it is worth: Aᵀ dual."""
        column = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        worth = np.bincount(column, self.value * dual[self.row], len(self.start) - 1)
        return worth.astype(np.float64)


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise cost · x subject to row bounds on A x and bounds on x (±inf where absent)."""

    cost: FloatArray
    matrix: Columns
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """An optimal vertex with its duals: cost = Aᵀ row_dual + column_dual."""

    objective: float
    value: FloatArray
    column_dual: FloatArray
    row_dual: FloatArray


def new_highs(*, presolve: bool) -> Any:
    """Return a silent single-threaded HiGHS simplex with tight tolerances."""
    make: Any = highspy.Highs
    highs = make()
    for option, value in _OPTIONS:
        highs.setOptionValue(option, value)
    highs.setOptionValue("solver", "simplex")
    highs.setOptionValue("presolve", "choose" if presolve else "off")
    return highs


def without_perturbation(highs: Any) -> None:
    """Solve without perturbed bounds from now on, up to ``STEP_LIMIT`` steps.

    Steps without gain may go in circles then, so their number is limited.
    """
    highs.setOptionValue(_PERTURBATION, 0.0)
    highs.setOptionValue("simplex_iteration_limit", STEP_LIMIT)


def rerun_highs(highs: Any) -> Any:
    """Solve from the last basis, then from scratch with wider tolerances; return the status.

    What is still undecided then is left to the other simplex method, and what takes too many
    steps to perturbed bounds.
    """
    highs.run()
    status = highs.getModelStatus()
    for tolerance in _TOLERANCES:
        if status in (highspy.HighsModelStatus.kOptimal, _TOO_LONG):
            break
        # A stale basis can mislead, and the tightest tolerance be out of reach.
        _set_tolerance(highs, tolerance)
        highs.clearSolver()
        highs.run()
        status = highs.getModelStatus()
        _set_tolerance(highs, _TOLERANCES[0])
        if status == highspy.HighsModelStatus.kInfeasible:
            break
    if status not in (*_DECIDED, _TOO_LONG):
        status = _solve_otherwise(highs)
    return _solve_perturbed(highs) if status == _TOO_LONG else status


def _solve_perturbed(highs: Any) -> Any:
    """Solve from scratch with perturbed bounds and without a limit of steps."""
    limit = highs.getOptionValue("simplex_iteration_limit")[1]
    highs.setOptionValue(_PERTURBATION, 1.0)
    highs.setOptionValue("simplex_iteration_limit", highspy.kHighsIInf)
    highs.clearSolver()
    status = rerun_highs(highs)
    highs.setOptionValue(_PERTURBATION, 0.0)
    highs.setOptionValue("simplex_iteration_limit", limit)
    return status


def _solve_otherwise(highs: Any) -> Any:
    """Solve from scratch by the method that is not the program's usual one."""
    usual = highs.getOptionValue("simplex_strategy")[1]
    highs.setOptionValue("simplex_strategy", _DUAL if usual == PRIMAL else PRIMAL)
    highs.clearSolver()
    highs.run()
    status = highs.getModelStatus()
    highs.setOptionValue("simplex_strategy", usual)
    return status


def _set_tolerance(highs: Any, tolerance: float) -> None:
    highs.setOptionValue("primal_feasibility_tolerance", tolerance)
    highs.setOptionValue("dual_feasibility_tolerance", tolerance)


def solve_lp(program: LinearProgram) -> LinearSolution:
    """Return an optimal vertex; SolveError names the status when there is none."""
    columns, rows = len(program.cost), len(program.row_lower)
    matrix = program.matrix
    highs = new_highs(presolve=True)
    highs.addRows(
        rows,
        program.row_lower,
        program.row_upper,
        0,
        np.zeros(rows, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0),
    )
    highs.addCols(
        columns,
        program.cost,
        program.lower,
        program.upper,
        len(matrix.value),
        matrix.start[:-1].astype(np.int32),
        matrix.row.astype(np.int32),
        matrix.value,
    )
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        name = highs.modelStatusToString(status).lower()
        raise SolveError("no optimal solution", status=name, n_classes=columns)
    solution = highs.getSolution()
    return LinearSolution(
        float(highs.getInfo().objective_function_value),
        np.array(solution.col_value),
        np.array(solution.col_dual),
        np.array(solution.row_dual),
    )
