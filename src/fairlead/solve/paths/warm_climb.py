"""Climbs that start from the prices of the last one, which seldom change.

Prices depend on the marginal classes only. So a planner keeps those of each stage; from there
``PriceStage`` finds the next climb's stages exactly in a few steps. A
program solves the climbs whose result it cannot prove to be the only one.
"""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.value import value
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import FillingStage
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution, Stage, feasible
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.options.filling import FlatPath
from fairlead.solve.paths.few_classes import STOP_TOLERANCE, priced_resources
from fairlead.solve.paths.filling import ClimbSolution, climb, climb_table
from fairlead.solve.paths.path import Path
from fairlead.solve.paths.price_stage import PriceStage, StageClasses
from fairlead.solve.solver import SIMPLEX_CLASSES, solve_max_min

_MAX_RESOURCES = 15


@value
class StageGuess:
    """A possible end of a stage: theta and prices."""

    theta: float
    prices: FloatArray


class WarmClimb:
    """Solves successive similar climbs; a solution is that of ``climb`` or ``solve_max_min``.

    The guesses decide only how it is ends.
    """

    def __init__(self) -> None:
        self._guesses: tuple[StageGuess, ...] = ()

    def climb(self, problem: MaxMinProblem, path: Path) -> ClimbSolution:
        """Return the levels to which ``path`` leads, as ``climb`` does."""
        problem.check()
        table, count = climb_table(problem)
        path = path.within(np.where(count > 0, table.cap, 0.0))
        now = self._from_guesses(table, count, problem.capacity, path, 1.0)
        if now is None:
            solution = climb(problem, path)
            self._keep(solution.stages, 1.0)
            return solution
        share = feasible(problem, now.share)
        share[problem.count <= 0] = 0.0
        return ClimbSolution(problem, path, share, _named(now.stages))

    def max_min(self, problem: MaxMinProblem, unit: float) -> MaxMinSolution:
        """Return the lexicographic max-min levels, as ``solve_max_min`` does.

        Levels are proportional to ``unit``, which may differ from call to call.
        """
        problem.check()
        table = ClassTable.of(problem.gain, problem.size, problem.capacity > 0)
        count = problem.count * (table.cap > 0)
        path = FlatPath(np.where(count > 0, table.cap, 0.0))
        now = self._from_guesses(table, count, problem.capacity, path, unit)
        if now is None:
            levels = tuple(guess.theta * unit for guess in self._guesses)
            solution = solve_max_min(problem, levels)
            self._keep(solution.stages, unit)
            return solution
        if len(count) > SIMPLEX_CLASSES:
            share = feasible(problem, now.share)
        else:
            share = np.maximum(now.share, 0.0).round(12)
        return MaxMinSolution(problem, share, _named(now.stages))

    def _keep(self, stages: tuple[Stage, ...], unit: float) -> None:
        self._guesses = tuple(StageGuess(s.level / unit, s.prices) for s in stages)

    def _from_guesses(
        self,
        table: ClassTable,
        count: FloatArray,
        capacity: FloatArray,
        path: Path,
        unit: float,
    ) -> FillingProgress | None:
        """Return the finished climb, None if the guesses do not lead to a unique one."""
        if len(capacity) > _MAX_RESOURCES:
            return None
        now = FillingProgress(table, count, capacity)
        ends: list[StageGuess] = []
        theta = 0.0
        while now.free.any():
            index = now.free.nonzero()[0]
            rest, room = table.rows(index, now.usable), now.room()
            if rest.fits(rest.best * count[index, None], room):
                if not rest.alone.all():
                    return None
                now.share[index] = rest.best
                now.note(path.top, np.zeros(len(room)), now.free, _whole(now, index, rest.cap))
                break
            if len(ends) >= len(self._guesses):
                return None
            guess = self._guesses[len(ends)]
            columns = now.usable.nonzero()[0]
            classes = StageClasses(
                rest.gain[:, columns], rest.size, count[index], rest.cost[:, columns],
                rest.alone, index,
            )  # fmt: skip
            stage = PriceStage(classes, room[columns], path, theta).find(
                guess.theta * unit, guess.prices[columns]
            )
            if stage is None:
                return None
            theta, prices = stage.theta, np.zeros(len(capacity))
            prices[columns] = stage.prices
            ends.append(StageGuess(theta / unit, prices))
            now.usable = now.usable & ~priced_resources(prices, now.usable)
            cap = np.where(now.usable, rest.gain, 0.0).max(axis=1)
            stopped = cap <= stage.level * (1 + STOP_TOLERANCE)
            if not stopped.any():
                return None
            now.share[index[stopped, None], columns] = stage.share[stopped]
            frozen = np.zeros(len(count), bool)
            frozen[index[stopped]] = True
            now.note(theta, prices, frozen, _whole(now, index, stage.level))
            path = path.within(_whole(now, index, np.where(stopped, stage.level, cap)))
        self._guesses = (*ends, *self._guesses[len(ends) :])
        return now


def _whole(now: FillingProgress, index: IntArray, level: FloatArray) -> FloatArray:
    """Return the levels of some classes as those of all."""
    whole = now.level.copy()
    whole[index] = level
    return whole


def _named(stages: list[FillingStage]) -> tuple[Stage, ...]:
    return tuple(Stage(s.t, s.prices, s.frozen.nonzero()[0]) for s in stages)
