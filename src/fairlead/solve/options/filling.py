"""Water-filling over options along a path, lexicographic by duals.

A stage climbs the path to the greatest theta whose levels are feasible. Then classes that
cannot rise further, because their levels have a price, are stopped, and the rest climbs on.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.options.basis import Basics, Keys, LastBasis, likely_options, option_keys
from fairlead.solve.options.pool import LastPrices, OptionPool, Prices, add_near_last
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.program import OptionProgram, WarmProgram, new_program_highs
from fairlead.solve.options.solution import OptionSolution, OptionStage
from fairlead.solve.options.stage import NEAR_TOLERANCE, SLACKS, Climb
from fairlead.solve.options.vertex import OptionVertex
from fairlead.solve.paths.path import Path

_PRICED = 1e-7  # relative to the prices of devices: below it is noise
_STEEP = 1e-6  # relative to caps: levels differ by more on steep paths only


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
    *,
    by_prices: bool = False,
) -> OptionSolution:
    """Return the levels reached by climbing ``path`` in stages, and of the times the tie rule's.

    The tie rule: the least device time; what is still tied is decided by the options' ``tie``
    numbers. No class is asked for more than its cap, even if the path exceeds it. ``guess`` holds
    thetas at which stages may end, ``start`` where the program begins, and ``by_prices`` lets
    prices tell where stages end and which options may have time: these decide only how many
    programs are solved, and how fast.
    """
    path = path.within(np.where(problem.count > 0, problem.cap, 0.0))
    filling = _OptionFilling(problem, path, guess, start, by_prices=by_prices)
    stages: list[OptionStage] = []
    while filling.rises():
        stages.append(filling.stage(guess[len(stages)] if len(stages) < len(guess) else 0.0))
    level = filling.path.level(filling.theta)
    least = filling.by_tie_rule(level, _unpriced(stages) if by_prices else None)
    # The last stage's levels are those of all stages, only ties are decided otherwise.
    vertex = stages[-1].vertex if least is None and stages else least
    if vertex is None:
        raise SolveError("levels were lost", status="infeasible", n_classes=problem.classes)
    tied = least.surplus if least is not None and by_prices else None
    time = problem.feasible(vertex.time)
    return OptionSolution(problem, time, level, tuple(stages), tied, filling.basis)


class WarmFilling:
    """Solves successive similar fillings; each begins where the last one ended."""

    def __init__(self, *, perturbed: bool = True, by_prices: bool = False) -> None:
        """Begin without a basis; many stages are solved faster with bounds not ``perturbed``.

        ``by_prices`` is for paths that bend: fewer programs are solved.
        """
        self._perturbed, self.by_prices = perturbed, by_prices
        self._ends: tuple[float, ...] = ()
        self._prices: tuple[LastPrices, ...] = ()
        self._basis: LastBasis | None = None
        self._highs: Any = None

    def fill_pool(
        self, pool: OptionPool, path_of: Callable[[OptionProblem], Path], keys: Keys
    ) -> OptionSolution:
        """Return the solution of ``fill_options`` over all options; those listed are its problem.

        Only for fillings ``by_prices``: an option with a price at the end of a stage has no time
        then, so that those without one are all that the tie rule may use.
        """
        assert self.by_prices
        pool.add_fastest()
        add_near_last(pool, self._prices, keys)
        while True:
            problem, _ = pool.listed()
            solution = self.fill(problem, path_of(problem), keys=keys)
            stages = [Prices.of(stage.vertex, 1.0, value=0.0) for stage in solution.stages]
            # Options cost at most a device and the time of two members.
            missing = [pool.add_near(each, 6 * _PRICED * each.greatest) for each in stages]
            if not any(missing):
                break
        self._prices = tuple(LastPrices.of(keys, prices) for prices in stages)
        return solution

    def fill(
        self, problem: OptionProblem, path: Path, unit: float = 1.0, keys: Keys | None = None
    ) -> OptionSolution:
        """Return the solution of ``fill_options``.

        The path's theta is proportional to ``unit``, which may differ from call to call. ``keys``
        (classes) name the classes that the last problem had, too.
        """
        guess = tuple(end * unit for end in self._ends)
        if keys is None:
            solution = fill_options(problem, path, guess, by_prices=self.by_prices)
        else:
            options = option_keys(problem, keys)
            if self._highs is None:
                self._highs = new_program_highs(perturbed=self._perturbed)
            self._highs.clearModel()
            start = WarmProgram(self._highs, self._basis, keys, options)
            solution = fill_options(problem, path, guess, start, by_prices=self.by_prices)
            if solution.stages and solution.basis is not None:
                vertices = [stage.vertex for stage in solution.stages]
                surplus = [vertices[0].surplus]
                if solution.tied is not None:
                    surplus.append(solution.tied)
                likely = likely_options(solution.basis, vertices, surplus)
                likely |= solution.time > 0
                self._basis = LastBasis.of(keys, options, solution.basis, likely)
        self._ends = tuple(
            # Where the path ended, it is likely to be followed to its end again.
            np.inf if self.by_prices and not stage.rate.any() else stage.theta / unit
            for stage in solution.stages
        )
        return solution


class _OptionFilling:
    """A water-filling in progress."""

    def __init__(
        self,
        problem: OptionProblem,
        path: Path,
        guess: tuple[float, ...],
        start: WarmProgram | None,
        *,
        by_prices: bool,
    ) -> None:
        self.problem, self._by_prices = problem, by_prices
        rate = path.rate(guess[0] * (1 + NEAR_TOLERANCE)) if guess else None
        self.program = OptionProgram(problem, start, rate)
        self.stopped = (problem.count <= 0) | (problem.cap <= 0)
        self.path = path
        self.theta = 0.0
        self._keeps_basis = start is not None
        self.basis: Basics | None = None
        """the basic columns and rows at the end of the first stage, if a start was given"""

    def rises(self) -> bool:
        """Return whether any class may still rise."""
        return not self.stopped.all() and self.theta < self.path.top * (1 - 1e-12)

    def by_tie_rule(self, level: FloatArray, among: BoolArray | None) -> OptionVertex | None:
        """Return the vertex of the tie rule at these levels, None if HiGHS finds none.

        ``among`` are the options that may have time at these levels, None if all may.
        """
        for slack in SLACKS:
            with suppress(SolveError):  # with a little more room it may be found
                held = level * (1 - slack)
                vertex = self.program.minimise(self.problem.device_time, held, among)
                if vertex is not None:
                    return vertex
        return None

    def stage(self, guess: float) -> OptionStage:
        """Climb to the greatest feasible theta and stop the classes that cannot rise further."""
        climb = Climb(self.program, self.path, self.theta, by_prices=self._by_prices)
        theta, vertex = climb.greatest(guess)
        if self._keeps_basis and self.basis is None:
            self.basis = self.program.basics()
        level, rate = self.path.level(theta), climb.rate(theta)
        cap, free = self.problem.cap, ~self.stopped
        # On a steep path a class may have reached less than it has a last bit of theta later.
        reached = self.problem.level(vertex.time)
        level = np.where(level - reached > _STEEP * cap, reached, level)
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


def _unpriced(stages: Sequence[OptionStage]) -> BoolArray | None:
    """Return options → no stage has a price for it; priced ones have no time at its levels."""
    unpriced = [
        stage.vertex.surplus <= _PRICED * max(float(stage.vertex.surplus.max(initial=0.0)), 1e-300)
        for stage in stages
    ]
    return np.logical_and.reduce(unpriced) if unpriced else None


def _marginal_cost(problem: OptionProblem, vertex: OptionVertex) -> FloatArray:
    """Return classes → what a little more of its level would cost of the rise, at least.

    That is its level's price, and what its cheapest option still costs too much: also a class
    that does not rise now may be unable to.
    """
    more = problem.least_per_gain(np.maximum(vertex.surplus, 0.0))
    cost: FloatArray = np.maximum(vertex.level_price, 0.0) + more
    return cost
