"""Greatest sums over many options, solved with the few columns that can matter."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import LinearSolution
from fairlead.solve.options.basis import Keys, LastBasis, likely_options, option_keys
from fairlead.solve.options.objectives import BestTimes, FaceProgram, best_sum, certificate
from fairlead.solve.options.pool import NEAR, LastPrices, OptionPool, Prices, Sum
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.vertex import OptionVertex

_TIED = 1e-9  # relative to the greatest price: options this close may be as good


class WarmSum:
    """Solves successive similar sums; each begins with the last one's options and basis."""

    def __init__(self) -> None:
        self._basis: LastBasis | None = None
        self._prices: LastPrices | None = None
        self._scale = 1.0
        """the greatest value of the last solution"""
        self._highs: Any = None

    def best(self, problem: OptionProblem, value: FloatArray, keys: Keys) -> BestTimes:
        """Return the solution of ``best_sum``; ``keys`` name classes that stay the same."""
        if problem.extra is not None or not problem.paired.any():
            return best_sum(problem, value)
        # Costs of order 1, so that tolerances mean the same in every unit.
        scale = float(np.abs(value).max()) or 1.0
        vertex, program = self._vertex(problem, -value / scale, keys)
        self._keep(vertex, scale, keys)
        return _settled(problem, value, vertex, program, scale, lambda: (problem, value))

    def best_of(self, pool: OptionPool, keys: Keys) -> BestTimes | None:
        """Return the solution over all options of a pool, whose listed ones it refers to.

        None without a last solution of as many resources: nothing then tells which options
        matter. The optimum is that of all options: those that would pay at its prices, or be as
        good, have been listed.
        """
        if self._prices is None or len(self._prices.prices.device) != pool.resources:
            return None
        pool.add_near(self._prices.of_classes(keys), NEAR * self._scale)
        while True:
            problem, value = pool.listed()
            if not problem.paired.any():
                return None
            scale = float(np.abs(value).max()) or 1.0
            vertex, program = self._vertex(problem, -value / scale, keys)
            # Twice, so that none is missed by rounding.
            close = 2 * _TIED * _greatest(vertex) * scale
            if not pool.add_near(Prices.of(vertex, scale), close):
                break
        self._keep(vertex, scale, keys)
        return _settled(problem, value, vertex, program, scale, pool.all)

    def _keep(self, vertex: OptionVertex, scale: float, keys: Keys) -> None:
        self._prices, self._scale = LastPrices.of(keys, Prices.of(vertex, scale)), scale

    def _vertex(
        self, problem: OptionProblem, cost: FloatArray, keys: Keys
    ) -> tuple[OptionVertex, OptionProgram]:
        """Return a vertex of least cost; its options are the next program's first columns."""
        options = option_keys(problem, keys)
        if self._highs is None:
            self._highs = new_program_highs()
        self._highs.clearModel()
        start = WarmProgram(self._highs, self._basis, keys, options)
        program = OptionProgram(problem, start, levels=False)
        vertex = program.minimise(cost, np.zeros(problem.classes))
        if vertex is None:  # no time at all is feasible
            raise SolveError("nothing fits", status="infeasible", n_classes=problem.classes)
        basics = program.basics()
        likely = likely_options(basics, [vertex], [vertex.surplus])
        self._basis = LastBasis.of(keys, options, basics, likely)
        return vertex, program


def _greatest(vertex: OptionVertex) -> float:
    """Return the greatest price or surplus."""
    parts = (vertex.surplus, vertex.prices, vertex.level_price, vertex.time_price)
    return max(float(np.abs(part).max()) for part in parts)


def _settled(
    problem: OptionProblem,
    value: FloatArray,
    vertex: OptionVertex,
    program: OptionProgram,
    scale: float,
    all_options: Callable[[], Sum],
) -> BestTimes:
    """Return the tie rule's times among those as good as a vertex, and the proof by its prices."""
    row_dual = np.concatenate([-vertex.prices, vertex.level_price, -vertex.time_price])
    time = problem.feasible(_tie_rule(problem, vertex, row_dual, program))
    reached = float((value * time).sum())
    return BestTimes(time, reached, lambda: certificate(*all_options(), row_dual * scale, reached))


def _tie_rule(
    problem: OptionProblem, vertex: OptionVertex, row_dual: FloatArray, program: OptionProgram
) -> FloatArray:
    """Return options → time of the tie rule; options with a price are used by nothing as good."""
    tied = (vertex.surplus <= _TIED * _greatest(vertex)).nonzero()[0]
    surplus, time = vertex.surplus[tied], np.zeros(len(vertex.time))
    row_worth = row_dual * _largest_uses(problem, tied)
    bounds, unique = program.bounds_of(tied).settled(surplus, row_worth)
    if unique:
        time[tied] = vertex.time[tied]
        return time
    least = program.minimise_within(problem.device_time, tied, bounds)
    if least is None:
        face = FaceProgram(_only(problem, tied), np.zeros(problem.classes))
        face.settle(LinearSolution(0.0, vertex.time[tied], surplus, row_dual))
        least = face.least_device_time()
    time[tied] = least
    return time


def _largest_uses(problem: OptionProblem, options: IntArray) -> FloatArray:
    """Return the rows of a sum's program → the most that one of these options uses of it."""
    width, classes = len(problem.capacity), problem.classes
    largest = np.zeros(width + 2 * classes)
    np.maximum.at(largest, problem.resource[options], problem.size[options])
    time, first, second = largest[-classes:], problem.first[options], problem.second[options]
    time[first] = 1.0
    time[second[second != NO_PARTNER]] = 1.0
    time[first[second == first]] = 2.0
    return largest


def _only(problem: OptionProblem, options: IntArray) -> OptionProblem:
    """Return the problem with these options alone."""
    names = ("resource", "size", "first", "second", "gain_first", "gain_second", "tie")
    return replace(problem, **{name: getattr(problem, name)[options] for name in names})
