"""Shares of units whose levels rise along a path: all alike, or by the policy's path."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.shares import as_job_shares, unit_allocation
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.solve.classes import Classes
from fairlead.solve.options.filling import FlatPath, WarmFilling
from fairlead.solve.options.first_stage import WarmFirstStage
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.solution import OptionSolution
from fairlead.solve.paths.path import Path

PathOf = Callable[[Classes, OptionProblem], Path]


def max_min_units(
    snap: Snapshot,
    scale: FloatArray,
    rules: UnitRules,
    last: WarmFilling,
    speed: FloatArray | None = None,
    unit: float = 1.0,
    *,
    by_job: bool = False,
    table: UnitTable | None = None,
) -> Allocation:
    """Return the lexicographic max-min shares of units, a job's level being scale × speed.

    ``last`` keeps where the planner's last filling ended, in levels per ``unit``. ``speed``
    (jobs × accelerators) replaces the believed speeds. ``by_job``: scales change from filling
    to filling, so that jobs stay the same rather than classes. ``table`` is that of these
    arguments, if it is known. Objective and bound are the least level.
    """
    table = unit_table(snap, scale, rules, speed) if table is None else table
    problem = table.problem(scale)
    keys = _job_keys(snap, table) if by_job else table.code
    solution = last.fill(problem, FlatPath(problem.cap), unit, keys)
    return _least_level_allocation(snap, table, solution, rules)


def least_level_units(
    snap: Snapshot,
    scale: FloatArray,
    value: FloatArray,
    rules: UnitRules,
    last: WarmFirstStage,
    unit: float = 1.0,
) -> Allocation:
    """Return the shares of units with the greatest least level, then of the greatest total value.

    A job's level is scale × speed, that of jobs whose cap is less their cap; ``value`` is jobs →
    value of its level. ``last`` keeps where the planner's last solve ended, in levels per
    ``unit``. Objective and bound are the least level.
    """
    table = unit_table(snap, scale, rules)
    problem = table.problem(scale)
    of_class = np.append(value[table.classes.representative], 0.0)  # class NO_PARTNER: no gain
    worth = problem.gain_first * of_class[problem.first]
    worth += problem.gain_second * of_class[problem.second]
    solution = last.best(problem, worth, unit, _job_keys(snap, table))
    return _least_level_allocation(snap, table, solution, rules)


def _least_level_allocation(
    snap: Snapshot, table: UnitTable, solution: OptionSolution, rules: UnitRules
) -> Allocation:
    """Return a solution as shares of units; objective and bound are the least level."""
    problem = solution.problem

    def worth() -> float:
        level = problem.level(solution.time)
        return float(level[problem.cap > 0].min(initial=np.inf))

    def prove() -> Certificate:
        return solution.certify_least()

    allocation = unit_allocation(snap, table, solution.time, worth=worth, prove=prove)
    return as_job_shares(snap, allocation, rules)


def path_units(
    snap: Snapshot,
    scale: FloatArray,
    distinct: FloatArray,
    path_of: PathOf,
    rules: UnitRules,
    last: WarmFilling,
    speed: FloatArray | None = None,
) -> Allocation:
    """Return the shares of units at the end of a path, a job's level being scale × speed.

    ``distinct`` (jobs × anything) holds further properties by which the path distinguishes jobs;
    ``last`` keeps where the planner's last climb ended; ``speed`` replaces the believed speeds.
    Objective and bound are the theta at which the
    resources first stop a class.
    """
    table = unit_table(snap, np.column_stack([scale, distinct]), rules, speed)
    problem = table.problem(scale)
    path = path_of(table.classes, problem)
    solution = last.fill(problem, path, keys=_job_keys(snap, table))

    def worth() -> float:
        return solution.stages[0].theta if solution.stages else 0.0

    def prove() -> Certificate:
        return solution.certify_theta()

    allocation = unit_allocation(snap, table, solution.time, worth=worth, prove=prove)
    return as_job_shares(snap, allocation, rules)


def _job_keys(snap: Snapshot, table: UnitTable) -> npt.NDArray[np.uint64]:
    """Return classes → number of its first job."""
    return snap.job[table.classes.representative].astype(np.uint64)
