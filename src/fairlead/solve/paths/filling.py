"""Climbing a path: the water-filling in which a policy says how levels rise together.

A stage ends at the greatest theta whose levels are feasible. The prices that prove it tell whom
it stops: at these prices everyone's cheapest ways cost all that the capacity is worth, so
whatever keeps these levels exhausts what has a price and uses the cheapest ways only. Hence a
class can rise further just if some resource without a price gives it more than it has; this
holds for classes that do not rise now, too, such as a job that waits in a queue. The others are
stopped, with their levels for caps, and what remains is a problem of the same kind on the
resources without a price: at most one stage for each resource.
"""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.certificate import certify
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.problem import (
    MaxMinProblem,
    Stage,
    feasible,
    usable_classes,
)
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.paths.bound import ClimbingClasses
from fairlead.solve.paths.few_classes import climb_few
from fairlead.solve.paths.many_classes import ClimbStage, climb_stage_many
from fairlead.solve.paths.path import Path
from fairlead.solve.solver import solve_least_level

# Above so many classes it pays to decide most of them by prices.
SIMPLEX_CLASSES = 160
_MAX_RESOURCES = 15
# Simplex alone takes minutes beyond.
_MAX_SIMPLEX_CLASSES = 5000
_REACHED_TOLERANCE = 1e-7  # relative to the cap: shares are rounded


@dataclass(frozen=True, slots=True)
class ClimbSolution:
    """The levels at the end of a climb, and the shares that reach them.

    A stage's ``level`` is the theta at which it ended. Its prices prove that, given the levels
    of those stopped before.
    """

    problem: MaxMinProblem
    path: Path
    """the path within what each class can reach alone"""
    share: FloatArray  # classes × resources, per member
    stages: tuple[Stage, ...]

    @property
    def level(self) -> FloatArray:
        """classes → the level that the shares reach."""
        level: FloatArray = (self.problem.gain * self.share).sum(axis=1)
        return level

    @property
    def theta(self) -> float:
        """The theta at which resources first stopped a class, or the path's top."""
        return self.stages[0].level if self.stages else self.path.top

    @property
    def certificate(self) -> Certificate:
        """Proof, recomputed from prices alone, that no shares reach a greater theta at first."""
        prices = self.stages[0].prices if self.stages else np.zeros(len(self.problem.capacity))
        bound = path_bound(self.problem, self.path, prices)
        return certify(prices, bound, self.reached())

    def reached(self) -> float:
        """Return the greatest theta, as far as the first stage's, whose levels are all reached."""
        cap = np.where(self.problem.capacity > 0, self.problem.gain, 0.0).max(axis=1)
        level = self.level + _REACHED_TOLERANCE * cap
        present = self.problem.count > 0
        low, high = 0.0, self.theta
        if (self.path.level(high) <= level)[present].all():
            return high
        for _ in range(60):
            middle = 0.5 * (low + high)
            fine = (self.path.level(middle) <= level)[present].all()
            low, high = (middle, high) if fine else (low, middle)
        return low


def path_bound(problem: MaxMinProblem, path: Path, prices: FloatArray) -> float:
    """Return a theta beyond which no feasible shares reach the path's levels, by any prices >= 0.

    It is the greatest theta at which the classes' cheapest ways to their levels cost no more
    than all capacity is worth, and never beyond the path's top.
    """
    live = np.flatnonzero(usable_classes(problem))
    if not len(live):
        return path.top
    gain = np.where(problem.capacity > 0, problem.gain, 0.0)[live]
    climbing = ClimbingClasses(
        np.ascontiguousarray(gain.T), problem.size[live], problem.count[live], path, live
    )
    budget = float((problem.capacity * prices).sum())
    return climbing.greatest(prices, budget, 0.0, path.top)


def climb(problem: MaxMinProblem, path: Path, few: int = SIMPLEX_CLASSES) -> ClimbSolution:
    """Return the levels to which the path leads, and of the shares that reach them the tie rule's.

    The tie rule is that of ``solve_max_min``: the least device time, and then a fixed generic
    perturbation of it. At most ``few`` classes are left to simplex alone.
    """
    problem.check()
    table, count = climb_table(problem)
    path = path.within(np.where(count > 0, table.cap, 0.0))
    now = FillingProgress(table, count, problem.capacity)
    _climb(now, path, few)
    share = feasible(problem, now.share)
    share[problem.count <= 0] = 0.0
    stages = tuple(Stage(s.t, s.prices, np.flatnonzero(s.frozen)) for s in now.stages)
    return ClimbSolution(problem, path, share, stages)


def climb_table(problem: MaxMinProblem) -> tuple[ClassTable, FloatArray]:
    """Return the table of the problem's classes, and their members if they can run.

    Classes of equal gains and size may stand at different levels, so the tie rule needs an order
    of these: earlier classes come first.
    """
    table = ClassTable.of(problem.gain, problem.size, problem.capacity > 0, ordered=True)
    return table, problem.count * (table.cap > 0)


def climb_first_stage(problem: MaxMinProblem, path: Path) -> ClimbSolution:
    """Return shares for levels in the proportions of the path, and nothing beyond them.

    The proportions are those at a theta that equal prices allow, so this stays below the first
    stage's end. It is for problems too ill-conditioned to climb: the certificate tells how far
    it stays behind.
    """
    problem.check()
    live = usable_classes(problem)
    cap = np.where(problem.capacity > 0, problem.gain, 0.0).max(axis=1)
    path = path.within(np.where(live, cap, 0.0))
    level = path.level(path_bound(problem, path, np.ones(len(problem.capacity))))
    rising = live & (level > 0)
    scaled = problem.gain / np.where(rising, level, 1.0)[:, None]
    part = MaxMinProblem(scaled, problem.size, problem.count * rising, problem.capacity)
    least = solve_least_level(part)
    solution = ClimbSolution(problem, path, least.share, ())
    prices = least.stages[0].prices if least.stages else np.zeros(len(problem.capacity))
    return replace(solution, stages=(Stage(solution.reached(), prices, np.flatnonzero(rising)),))


def _climb(now: FillingProgress, path: Path, few: int) -> None:
    theta, width = 0.0, len(now.capacity)
    while now.free.any():
        index = np.flatnonzero(now.free)
        rest = now.table.rows(index, now.usable)
        if rest.fits(rest.best * now.count[index, None], now.room()):
            now.share[index] = rest.best
            now.flexible = np.concatenate([now.flexible, index[~rest.alone]])
            now.note(path.top, np.zeros(width), now.free, _expand_to_all_classes(now, rest.cap))
            break
        stage = None
        if len(index) > few and width <= _MAX_RESOURCES:
            stage = climb_stage_many(now, path, index, rest, theta)
        if stage is None:
            if len(index) > _MAX_SIMPLEX_CLASSES:
                why = "too many marginal classes"
                raise SolveError(why, status="stalled", n_classes=len(index))
            climb_few(now, path, theta)
            return
        theta = stage.theta
        path = path.within(_freeze_stopped(now, stage))
    if len(now.stages) > 1:
        now.settle()


def _freeze_stopped(now: FillingProgress, stage: ClimbStage) -> FloatArray:
    """Stop whom the stage stops; return classes → cap from now on."""
    index, table = stage.index, now.table
    now.share[now.flexible] = stage.held_share
    frozen = np.zeros(len(now.count), bool)
    frozen[index[stage.stopped]] = True
    now.share[index[stage.stopped]] = stage.share[stage.stopped]
    tied = index[stage.marginal]
    now.flexible = np.concatenate([now.flexible, tied[frozen[tied]]])
    now.usable = now.usable & ~stage.priced
    now.note(stage.theta, stage.prices, frozen, _expand_to_all_classes(now, stage.level))
    open_cap = np.where(now.usable, table.gain, 0.0).max(axis=1)
    return np.where(now.free, open_cap, now.level)


def _expand_to_all_classes(now: FillingProgress, level: FloatArray) -> FloatArray:
    """Return the free classes' levels as those of all classes."""
    whole = now.level.copy()
    whole[now.free] = level
    return whole
