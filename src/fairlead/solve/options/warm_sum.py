"""Greatest sums over many options, solved with the few columns that can matter."""

from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import LinearSolution
from fairlead.solve.options.basis import Keys, LastBasis, option_keys
from fairlead.solve.options.objectives import (
    BestTimes,
    best_sum,
    best_times,
    least_device_time_on_face,
)
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.vertex import OptionVertex

_TIED = 1e-9  # relative to the greatest price: options this close may be as good


class WarmSum:
    """Solves successive similar sums; each begins with the last one's options and basis."""

    def __init__(self) -> None:
        self._basis: LastBasis | None = None
        self._highs: Any = None

    def best(self, problem: OptionProblem, value: FloatArray, keys: Keys) -> BestTimes:
        """Return the solution of ``best_sum``; ``keys`` name classes that stay the same."""
        if problem.extra is not None or not problem.paired.any():
            return best_sum(problem, value)
        # Costs of order 1, so that tolerances mean the same in every unit.
        scale = float(np.abs(value).max()) or 1.0
        vertex = self._vertex(problem, -value / scale, keys)
        row_dual = np.concatenate([-vertex.prices, vertex.level_price, -vertex.time_price])
        time = problem.feasible(_tie_rule(problem, vertex, row_dual))
        return best_times(problem, value, time, row_dual * scale)

    def _vertex(self, problem: OptionProblem, cost: FloatArray, keys: Keys) -> OptionVertex:
        """Return a vertex of least cost; its options are the next program's first columns."""
        options = option_keys(problem, keys)
        if self._highs is None:
            self._highs = new_program_highs()
        self._highs.clearModel()
        program = OptionProgram(problem, WarmProgram(self._highs, self._basis, keys, options))
        vertex = program.minimise(cost, np.zeros(problem.classes))
        if vertex is None:  # no time at all is feasible
            raise SolveError("nothing fits", status="infeasible", n_classes=problem.classes)
        self._basis = LastBasis.of(keys, options, [vertex], vertex.time)
        return vertex


def _tie_rule(problem: OptionProblem, vertex: OptionVertex, row_dual: FloatArray) -> FloatArray:
    """Return options → time of the tie rule; options with a price are used by nothing as good."""
    greatest = max(float(np.abs(vertex.surplus).max()), float(np.abs(row_dual).max()))
    tied = (vertex.surplus <= _TIED * greatest).nonzero()[0]
    first = LinearSolution(0.0, vertex.time[tied], vertex.surplus[tied], row_dual)
    time = np.zeros(len(vertex.time))
    time[tied] = least_device_time_on_face(_only(problem, tied), first)
    return time


def _only(problem: OptionProblem, options: IntArray) -> OptionProblem:
    """Return the problem with these options alone."""
    names = ("resource", "size", "first", "second", "gain_first", "gain_second", "tie")
    return replace(problem, **{name: getattr(problem, name)[options] for name in names})
