"""Water-filling by duals: lexicographic max-min levels in a few linear programs.

All classes rise together until some cannot. Those with a positive dual are bottlenecked
(strict complementarity) and are frozen; the rest rises on. A class also stops at its cap, its
greatest gain: the classes that stand at their caps when a stage ends are guessed from the last
answer and corrected, so that a stage takes one or two programs rather than one per class.
"""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.model.value import value
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.program import StageProgram, Vertex

CAP_TOLERANCE = 1e-9  # relative: the water stands at a cap
DUAL_TOLERANCE = 1e-7  # duals are near 1; HiGHS leaves noise up to 1e-10
_MIN_SLACK = 1e-14
_MAX_PROGRAMS = 200


@value
class FillingStage:
    """The end of one stage: the water's level, its prices and the classes it froze."""

    t: float
    prices: FloatArray
    frozen: BoolArray


@dataclass(slots=True)
class Filling:
    """A water-filling in progress: the classes that still rise, and the levels of the others."""

    program: StageProgram
    table: ClassTable
    count: FloatArray
    capacity: FloatArray
    free: BoolArray
    level: FloatArray


def fill(
    state: Filling, loose: BoolArray, guess: tuple[float, ...]
) -> tuple[FloatArray, list[FillingStage]]:
    """Return classes × resources → class totals of shares, and the stages that led there.

    ``loose`` marks what could differ between shares of equal levels, by prior knowledge.
    ``guess`` holds levels of the stages; it decides only how many programs are solved.
    """
    stages: list[FillingStage] = []
    while True:
        near = guess[len(stages)] if len(stages) < len(guess) else stages[-1].t
        stage, vertex = fill_stage(state, near)
        if not stage.frozen.any():  # every dual is next to nothing: the greatest must do
            most = vertex.level_price >= vertex.level_price[state.free].max()
            stage = replace(stage, frozen=state.free & most)
        stages.append(stage)
        frozen, cap = stage.frozen, state.table.cap
        state.level = np.where(frozen, np.minimum(stage.t, cap), state.level)
        state.free = state.free & ~frozen
        # A dual says that all shares with these levels leave its share or slack at 0.
        loose = loose & (np.abs(vertex.dual) <= DUAL_TOLERANCE)
        total = vertex.total
        if state.free.any():
            # The frozen classes need all of what has a price, whatever later prices are.
            state.table = state.table.without(stage.prices > DUAL_TOLERANCE, state.free)
            total = _fill_to_caps(state, total)
            if not state.table.fits(total, state.capacity):
                continue
            # The resources that each stage exhausted keep the rest at these caps.
            stages.append(_freeze_at_caps(state, np.sum([s.prices for s in stages], axis=0)))
        if is_undetermined(state, loose):
            total = state.program.least_cost(state.count, state.level, state.table.cost).total
        return total, stages


def _fill_to_caps(state: Filling, total: FloatArray) -> FloatArray:
    rest = state.table.best * (state.count * state.free)[:, None]
    return np.where(state.free[:, None], rest, total)


def _freeze_at_caps(state: Filling, prices: FloatArray) -> FillingStage:
    free, cap = state.free, state.table.cap
    state.level = np.where(free, cap, state.level)
    state.free = np.zeros_like(free)
    return FillingStage(float(cap[free].max()), prices, free)


def is_undetermined(state: Filling, loose: BoolArray) -> bool:
    """Return whether other shares may reach these levels: something loose is nonbasic."""
    if not state.program.any_nonbasic(loose):
        return False
    # A class at its cap spends all its time on its best resource, if it has only one.
    table = state.table
    settled = table.alone & (state.level >= table.cap)
    loose = loose & state.program.loose(settled, table.gain <= 0)
    return state.program.any_nonbasic(loose)


def fill_stage(state: Filling, guess: float) -> tuple[FillingStage, Vertex]:
    """Return the stage at whose end every free class stands at min(t, cap), t greatest."""
    table, free = state.table, state.free
    cap = table.cap
    search, slack = _LevelSearch(guess), _MIN_SLACK
    for _ in range(_MAX_PROGRAMS):
        held, follows, top = state.level * (1 - slack), free, 0.0
        if search.theta >= table.least_cap:
            follows = free & (cap > search.theta)
            held = np.where(free & ~follows, cap * (1 - max(slack - _MIN_SLACK, 0.0)), held)
            top = float(cap[free & ~follows].max(initial=0.0))
        vertex = state.program.maximise_level(state.count, held, follows, table.ceiling)
        if vertex is None or vertex.t < top * (1 - CAP_TOLERANCE):
            if top <= search.low:
                if slack > CAP_TOLERANCE or not held.any():
                    break
                # Levels reached are known up to rounding; held exactly they may just not fit.
                slack *= 10
                continue
            # Holding the greatest of these caps is too much, so the water stays below it.
            search.descend(cap[free], top, 0.0 if vertex is None else vertex.t)
            continue
        reached = vertex.t * (1 + CAP_TOLERANCE)
        frozen = follows & (vertex.level_price > DUAL_TOLERANCE)
        if reached >= table.least_cap:
            capped = free & (cap <= reached)
            priced = (vertex.prices > DUAL_TOLERANCE) & table.is_open
            if (capped & follows).any() and not priced.any():
                # Only caps stop the water: it can stand higher with these held at theirs.
                search.ascend(cap[free], reached)
                continue
            frozen |= capped
            if vertex.t > table.ceiling * (1 - CAP_TOLERANCE):
                vertex.t = float(cap[free].max())
        return FillingStage(vertex.t, vertex.prices, frozen), vertex
    status = "infeasible" if vertex is None else "cycling"
    raise SolveError("caps did not settle", status=status, n_classes=int(free.sum()))


class _LevelSearch:
    """Search for the stage's level among the caps: near the guess first, then by halves.

    ``theta`` is the present guess: classes with caps up to it are held at their caps.
    """

    def __init__(self, guess: float) -> None:
        self.theta = guess
        self.low, self._high = 0.0, np.inf  # reached, and too high: the level lies between
        self._stride = 0

    def ascend(self, caps: FloatArray, reached: float) -> None:
        """Look above ``reached``: past more caps each time, halfway if a bound is known."""
        self.low = max(self.low, reached)
        between = self._between(caps)
        index = len(between) // 2 if self._high < np.inf else self._stride - 1
        self._stride = 2 * self._stride or 1
        at_low = index < 0 or not len(between)
        self.theta = self.low if at_low else float(between[min(index, len(between) - 1)])

    def descend(self, caps: FloatArray, top: float, reached: float) -> None:
        """Look below the cap ``top``; just at ``reached``, if something above was reached."""
        self._high = min(self._high, top)
        if reached > self.low:
            self.theta = self.low = reached
            return
        between = self._between(caps)
        self.theta = float(between[len(between) // 2]) if len(between) else self.low

    def _between(self, caps: FloatArray) -> FloatArray:
        return np.sort(caps[(caps > self.low) & (caps < self._high)])
