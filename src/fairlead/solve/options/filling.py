"""Water-filling over options along a path, lexicographic by duals.

A stage climbs the path to the greatest theta whose levels are feasible. Then classes that
cannot rise further, because their levels have a price, are stopped, and the rest climbs on.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.options.basis import Keys, LastBasis, option_keys
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.solution import OptionSolution, OptionStage
from fairlead.solve.options.stage import NEAR_TOLERANCE, SLACKS, Climb
from fairlead.solve.options.vertex import OptionVertex
from fairlead.solve.paths.path import Path

_PRICED = 1e-7  # relative to the prices of devices: below it is noise


@dataclass(frozen=True, slots=True, eq=False)
class FlatPath:
    """All classes at the same level, as far as their caps let them: max-min fairness."""

    cap: FloatArray

    @property
    def top(self) -> float:
        """The greatest cap."""
        return float(self.cap.max(initial=0.0))

    def level(self, theta: float) -> FloatArray:
        """Return theta, or the cap where that is less."""
        return np.minimum(theta, self.cap)

    def rate(self, theta: float) -> FloatArray:
        """Return 1 below the cap and 0 from it on."""
        return (self.cap > theta * (1 + 1e-12)).astype(float)

    def within(self, cap: FloatArray) -> "FlatPath":
        """Return the path with these caps."""
        return FlatPath(np.minimum(self.cap, cap))


def fill_options(
    problem: OptionProblem,
    path: Path,
    guess: tuple[float, ...] = (),
    start: WarmProgram | None = None,
) -> OptionSolution:
    """Return the levels reached by climbing ``path`` in stages, and of the times the tie rule's.

    The tie rule: the least device time; what is still tied is decided by the options' ``tie``
    numbers. No class is asked for more than its cap, even if the path exceeds it. ``guess`` holds
    thetas at which stages may end, ``start`` where the program begins; both decide only how many
    programs are solved, and how fast.
    """
    path = path.within(np.where(problem.count > 0, problem.cap, 0.0))
    filling = _OptionFilling(problem, path, guess, start)
    stages: list[OptionStage] = []
    while filling.rises():
        stages.append(filling.stage(guess[len(stages)] if len(stages) < len(guess) else 0.0))
    level = filling.path.level(filling.theta)
    time = filling.by_tie_rule(level)
    if time is None and stages:
        # Its levels are those of all stages, only ties are decided otherwise.
        time = stages[-1].vertex.time
    if time is None:
        raise SolveError("levels were lost", status="infeasible", n_classes=problem.classes)
    return OptionSolution(problem, problem.feasible(time), level, tuple(stages))


class WarmFilling:
    """Solves successive similar fillings; each begins where the last one ended."""

    def __init__(self, *, perturbed: bool = True) -> None:
        """Begin without a basis; many stages are solved faster with bounds not ``perturbed``."""
        self._perturbed = perturbed
        self._ends: tuple[float, ...] = ()
        self._basis: LastBasis | None = None
        self._highs: Any = None

    def fill(
        self, problem: OptionProblem, path: Path, unit: float = 1.0, keys: Keys | None = None
    ) -> OptionSolution:
        """Return the solution of ``fill_options``.

        The path's theta is proportional to ``unit``, which may differ from call to call. ``keys``
        (classes) name the classes that the last problem had, too.
        """
        guess = tuple(end * unit for end in self._ends)
        if keys is None:
            solution = fill_options(problem, path, guess)
        else:
            options = option_keys(problem, keys)
            if self._highs is None:
                self._highs = new_program_highs(perturbed=self._perturbed)
            self._highs.clearModel()
            start = WarmProgram(self._highs, self._basis, keys, options)
            solution = fill_options(problem, path, guess, start)
            if solution.stages:
                vertices = [stage.vertex for stage in solution.stages]
                self._basis = LastBasis.of(keys, options, vertices, solution.time)
        self._ends = tuple(stage.theta / unit for stage in solution.stages)
        return solution


class _OptionFilling:
    """A water-filling in progress."""

    def __init__(
        self,
        problem: OptionProblem,
        path: Path,
        guess: tuple[float, ...],
        start: WarmProgram | None,
    ) -> None:
        self.problem = problem
        rate = path.rate(guess[0] * (1 + NEAR_TOLERANCE)) if guess else None
        self.program = OptionProgram(problem, start, rate)
        self.stopped = (problem.count <= 0) | (problem.cap <= 0)
        self.path = path
        self.theta = 0.0

    def rises(self) -> bool:
        """Return whether any class may still rise."""
        return not self.stopped.all() and self.theta < self.path.top * (1 - 1e-12)

    def by_tie_rule(self, level: FloatArray) -> FloatArray | None:
        """Return options → time of the tie rule at these levels, None if HiGHS finds none."""
        for slack in SLACKS:
            with suppress(SolveError):  # with a little more room it may be found
                vertex = self.program.minimise(self.problem.device_time, level * (1 - slack))
                if vertex is not None:
                    return vertex.time
        return None

    def stage(self, guess: float) -> OptionStage:
        """Climb to the greatest feasible theta and stop the classes that cannot rise further."""
        climb = Climb(self.program, self.path, self.theta)
        theta, vertex = climb.greatest(guess)
        level, rate = self.path.level(theta), climb.rate(theta)
        cap, free = self.problem.cap, ~self.stopped
        cost = _marginal_cost(self.problem, vertex) * cap
        scale = max(float(vertex.prices.max()), float(vertex.time_price.max()), 1e-300)
        stopped = free & ((cost > _PRICED * scale) | (level >= cap * (1 - NEAR_TOLERANCE)))
        if theta >= self.path.top * (1 - 1e-12):
            stopped = free
        elif not stopped.any():  # every price is next to nothing: the greatest must do
            held = free & (rate > 0) if (free & (rate > 0)).any() else free
            stopped = held & (cost >= cost[held].max())
        self.stopped = self.stopped | stopped
        self.theta = theta
        self.path = self.path.within(np.where(self.stopped, level, cap))
        return OptionStage(theta, vertex, stopped, level, rate)


def _marginal_cost(problem: OptionProblem, vertex: OptionVertex) -> FloatArray:
    """Return classes → what a little more of its level would cost of the rise, at least.

    That is its level's price, and what its cheapest option still costs too much: also a class
    that does not rise now may be unable to.
    """
    more = problem.least_per_gain(np.maximum(vertex.surplus, 0.0))
    cost: FloatArray = np.maximum(vertex.level_price, 0.0) + more
    return cost
