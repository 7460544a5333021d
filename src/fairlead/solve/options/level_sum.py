"""The greatest least level over options, then the greatest sum at that level.

Two programs, but mostly one: where a class that has all of its time on its fastest option sets the
least level, the sum with that level for all is feasible, and nothing else has to be solved.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.options.basis import Keys, LastBasis, likely_options, option_keys
from fairlead.solve.options.pool import LastPrices, OptionPool, Prices, add_near_last
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.solution import certify_least
from fairlead.solve.options.stage import SLACKS
from fairlead.solve.options.vertex import OptionVertex

# Part of an option's value by which ties are decided: far above HiGHS's dual tolerance.
_TIE = 1e-5
_PAYS = 1e-9
"""relative to the greatest price: what lacks less may pay"""
_SAME = 1e-12

_Found = tuple[OptionVertex, Prices]


@dataclass(frozen=True, slots=True, eq=False)
class LevelSum:
    """The times of greatest sum among those of the greatest least level."""

    time: FloatArray
    """options listed → total time over the members"""
    level: FloatArray
    """classes → level of each member"""
    pool: OptionPool
    vertex: OptionVertex | None
    """a vertex whose prices prove the least level; None where a cap does"""

    def certify_least(self) -> Certificate:
        """Proof, over all options, that the least level cannot be raised."""
        return certify_least(self.pool.all()[0], self.level, self.vertex)


class WarmLevelSum:
    """Solves successive similar problems; each begins where the last one ended."""

    def __init__(self) -> None:
        self._end = 0.0
        """the last least level"""
        self._at_cap = True
        """a cap set the last least level"""
        self._prices: tuple[LastPrices, ...] = ()
        self._basis: LastBasis | None = None
        self._highs: Any = None

    def best(self, pool: OptionPool, unit: float, keys: Keys) -> LevelSum:
        """Return the times of greatest Σ value · y among those with the greatest least level.

        Ties are decided by the options' ``tie`` numbers. Levels are in proportion to ``unit``,
        which may differ from call to call; ``keys`` name classes that stay the same. Both decide
        only how fast it is.
        """
        pool.add_fastest()
        add_near_last(pool, self._prices, keys, unit)
        problem, _ = pool.listed()
        top, stage, best = _least_cap(problem), None, None
        if not top > 0:
            nothing = np.zeros(len(problem.resource))
            return LevelSum(nothing, np.zeros(problem.classes), pool, None)
        least = top
        if self._at_cap:
            best = self._greatest_sum(pool, top, keys, SLACKS[:1])
        if best is None:
            guess = min(self._end * unit, top)
            least, stage = self._least_level(pool, guess, top, keys)
            best = self._greatest_sum(pool, least, keys, SLACKS)
        if best is None:
            best = self._least_level(pool, least, top, keys)[1]
        self._end, self._at_cap = least / unit, least >= top
        ends = [best] if stage is None else [best, stage]
        self._prices = tuple(LastPrices.of(keys, prices, unit) for _, prices in ends)
        problem, _ = pool.listed()
        time = problem.feasible(best[0].time)
        return LevelSum(time, problem.level(time), pool, None if stage is None else stage[0])

    def _least_level(
        self, pool: OptionPool, guess: float, top: float, keys: Keys
    ) -> tuple[float, _Found]:
        """Return the greatest level up to ``top`` that all classes reach, and its vertex."""
        while True:
            problem, _ = pool.listed()
            lives, options = _lives(problem).astype(float), option_keys(problem, keys)
            program = self._program(problem, keys, options, lives)
            vertex = program.raise_levels(guess * lives, lives, -guess, top - guess)
            if vertex is None:  # no time at all reaches no level
                raise SolveError("nothing fits", status="infeasible", n_classes=problem.classes)
            self._keep_basis(keys, options, program, vertex)
            least, prices = guess + vertex.rise, Prices.of(vertex, 1.0, value=0.0)
            if least >= top * (1 - _SAME):
                return top, (vertex, prices)
            if not pool.add_near(prices, _PAYS * prices.greatest):
                return least, (vertex, prices)

    def _greatest_sum(
        self, pool: OptionPool, least: float, keys: Keys, slacks: Sequence[float]
    ) -> _Found | None:
        """Return the vertex of the greatest sum at a least level, None if HiGHS finds none."""
        while True:
            problem, value = pool.listed()
            greatest = float(value.max(initial=0.0)) or 1.0
            cost = value * (_TIE * problem.tie - 1.0) / greatest
            level = np.where(_lives(problem), least, 0.0)
            options = option_keys(problem, keys)
            program = self._program(problem, keys, options, None)
            vertex = _minimised(program, cost, level, slacks)
            if vertex is None:
                return None
            self._keep_basis(keys, options, program, vertex)
            prices = Prices.of(vertex, greatest)
            if not pool.add_near(prices, _PAYS * prices.greatest):
                return vertex, prices

    def _program(
        self, problem: OptionProblem, keys: Keys, options: Keys, rate: FloatArray | None
    ) -> OptionProgram:
        """Return the program, at the last basis."""
        if self._highs is None:
            self._highs = new_program_highs(perturbed=False)
        self._highs.clearModel()
        return OptionProgram(problem, WarmProgram(self._highs, self._basis, keys, options), rate)

    def _keep_basis(
        self, keys: Keys, options: Keys, program: OptionProgram, vertex: OptionVertex
    ) -> None:
        basics = program.basics()
        likely = likely_options(basics, [vertex], [vertex.surplus])
        self._basis = LastBasis.of(keys, options, basics, likely)


def _lives(problem: OptionProblem) -> BoolArray:
    """Return classes → it has members and can run."""
    lives: BoolArray = (problem.count > 0) & (problem.cap > 0)
    return lives


def _least_cap(problem: OptionProblem) -> float:
    """Return the least of the greatest levels that classes reach alone; 0 without classes."""
    cap = problem.cap[_lives(problem)]
    return float(cap.min()) if len(cap) else 0.0


def _minimised(
    program: OptionProgram, cost: FloatArray, level: FloatArray, slacks: Sequence[float]
) -> OptionVertex | None:
    """Return the vertex of least cost at these levels, or a little below; None without any."""
    for slack in slacks:
        with suppress(SolveError):  # with a little more room it may be found
            vertex = program.minimise(cost, level * (1 - slack))
            if vertex is not None:
                return vertex
    return None
