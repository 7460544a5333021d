"""The first stage of a water-filling over options, then the greatest sum at its levels.

Two programs instead of one or more for each of many stages: for policies whose later levels decide
little.
"""

from contextlib import suppress
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.options.basis import Keys, LastBasis, likely_options, option_keys
from fairlead.solve.options.filling import FlatPath
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.solution import OptionSolution, OptionStage
from fairlead.solve.options.stage import NEAR_TOLERANCE, SLACKS, Climb
from fairlead.solve.options.vertex import OptionVertex

# Part of an option's value by which ties are decided: far above HiGHS's dual tolerance.
_TIE = 1e-5


class WarmFirstStage:
    """Solves successive similar problems; each begins where the last one ended."""

    def __init__(self) -> None:
        self._end = 0.0
        self._basis: LastBasis | None = None
        self._highs: Any = None

    def best(
        self, problem: OptionProblem, value: FloatArray, unit: float, keys: Keys
    ) -> OptionSolution:
        """Return the times of greatest Σ value · y among those with the greatest common level.

        That level is the greatest at which all classes are, but for those whose cap is less; they
        are at their caps. Ties are decided by the options' ``tie`` numbers. Levels are in
        proportion to ``unit``, which may differ from call to call; ``keys`` name classes that
        stay the same. Both decide only how fast it is.
        """
        path = FlatPath(np.where(problem.count > 0, problem.cap, 0.0))
        guess = self._end * unit
        if not path.top > 0:
            return OptionSolution(
                problem, np.zeros(len(problem.resource)), np.zeros(problem.classes), ()
            )
        options = option_keys(problem, keys)
        if self._highs is None:
            self._highs = new_program_highs(perturbed=False)
        self._highs.clearModel()
        rate = path.rate(guess * (1 + NEAR_TOLERANCE)) if guess else None
        start = WarmProgram(self._highs, self._basis, keys, options)
        program = OptionProgram(problem, start, rate)
        climb = Climb(program, path, 0.0)
        theta, vertex = climb.greatest(guess)
        basics, level = program.basics(), path.level(theta)
        stage = OptionStage(
            theta, vertex, np.ones(problem.classes, bool), level, climb.rate(theta)
        )
        vertices = [vertex]
        greatest = _greatest_sum(program, value, level)
        if greatest is not None:
            vertices.append(greatest)
        time = vertices[-1].time
        likely = likely_options(basics, vertices, [vertex.surplus])
        self._basis = LastBasis.of(keys, options, basics, likely)
        self._end = theta / unit
        time = problem.feasible(time)
        return OptionSolution(problem, time, problem.level(time), (stage,))


def _greatest_sum(
    program: OptionProgram, value: FloatArray, level: FloatArray
) -> OptionVertex | None:
    """Return the vertex of the greatest sum at these levels, None if HiGHS finds none."""
    cost = value * (_TIE * program.problem.tie - 1.0)
    cost /= max(float(value.max(initial=0.0)), 1e-300)
    for slack in SLACKS:
        with suppress(SolveError):  # with a little more room it may be found
            vertex = program.minimise(cost, level * (1 - slack))
            if vertex is not None:
                return vertex
    return None
