"""Shares of units whose levels rise along a path: all alike, or by the policy's path."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.near_pairs import near_pairs
from fairlead.policies._packing.shares import as_job_shares, unit_allocation
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.solve.classes import Classes
from fairlead.solve.options.filling import FlatPath, WarmFilling
from fairlead.solve.options.level_sum import WarmLevelSum
from fairlead.solve.options.pool import AllOptions
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.solution import certify_theta
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

    def worth() -> float:
        level = problem.level(solution.time)
        return float(level[problem.cap > 0].min(initial=np.inf))

    allocation = unit_allocation(
        snap, table, solution.time, worth=worth, prove=solution.certify_least
    )
    return as_job_shares(snap, allocation, rules)


def least_level_units(
    snap: Snapshot,
    scale: FloatArray,
    value: FloatArray,
    rules: UnitRules,
    last: WarmLevelSum,
    unit: float = 1.0,
) -> Allocation:
    """Return the shares of units with the greatest least level, then of the greatest total value.

    A job's level is scale × speed, and ``value`` is jobs → value of a step per second. ``last``
    keeps where the planner's last solve ended, in levels per ``unit``. Objective and bound are the
    least level.
    """

    def value_of(table: UnitTable, problem: OptionProblem) -> FloatArray:
        del problem
        of_class = np.append(value[table.classes.representative], 0.0)  # NO_PARTNER: no speed
        worth: FloatArray = table.speed_first * of_class[table.first]
        worth += table.speed_second * of_class[table.second]
        return worth

    everywhere = np.broadcast_to(value[:, None], (len(value), len(snap.capacity)))
    near = near_pairs(snap, rules, everywhere, scale, value_of, scale)
    if near is not None:
        solution = last.best(near, unit, snap.job.astype(np.uint64))
        table = near.table
    else:
        table = unit_table(snap, scale, rules)
        problem = table.problem(scale)
        pool = AllOptions(problem, value_of(table, problem))
        solution = last.best(pool, unit, _job_keys(snap, table))
    runs = solution.pool.listed()[0].cap > 0

    def worth() -> float:
        return float(solution.level[runs].min(initial=np.inf))

    allocation = unit_allocation(
        snap, table, solution.time, worth=worth, prove=solution.certify_least
    )
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
    near = None
    if last.by_prices and speed is None:
        nothing = np.zeros(snap.speed.shape)
        each = np.column_stack([scale, distinct])
        near = near_pairs(snap, rules, nothing, scale, _no_value, each)
    if near is not None:
        every = Classes.apart(len(snap.job))
        keys = snap.job.astype(np.uint64)
        solution = last.fill_pool(near, lambda problem: path_of(every, problem), keys)
        table = near.table
    else:
        table = unit_table(snap, np.column_stack([scale, distinct]), rules, speed)
        problem = table.problem(scale)
        solution = last.fill(problem, path_of(table.classes, problem), 1.0, _job_keys(snap, table))

    def worth() -> float:
        return solution.stages[0].theta if solution.stages else 0.0

    def prove() -> Certificate:
        problem = solution.problem if near is None else near.all()[0]
        return certify_theta(problem, solution.stages)

    allocation = unit_allocation(snap, table, solution.time, worth=worth, prove=prove)
    return as_job_shares(snap, allocation, rules)


def _no_value(table: UnitTable, problem: OptionProblem) -> FloatArray:
    del problem
    return np.zeros(len(table.first))


def _job_keys(snap: Snapshot, table: UnitTable) -> npt.NDArray[np.uint64]:
    """Return classes → number of its first job."""
    return snap.job[table.classes.representative].astype(np.uint64)
