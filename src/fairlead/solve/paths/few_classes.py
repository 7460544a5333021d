"""The stages of a climb for a moderate number of classes, by simplex and prices.

At a theta that is too great the levels can be scaled down until they fit; the prices there bound
theta again (``bound``), and so on until the levels fit as they are. Each bound is a Newton step
from above, so a handful of programs make a stage.
"""

from contextlib import suppress

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.hull import Hulls
from fairlead.solve.max_min.program import StageProgram, Vertex
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.paths.bound import ClimbingClasses
from fairlead.solve.paths.path import Path

STOP_TOLERANCE = 1e-9  # relative: a class stands at what the open resources give it
PRICE_TOLERANCE = 1e-7  # relative to the greatest price
_FITS = 1e-10
_NO_BETTER = 1e-13
_SLACKS = (1e-12, 1e-10, 1e-9, 1e-8)
_KEPT = 1e-7
_MAX_PROGRAMS = 100


def climb_few(now: FillingProgress, path: Path, theta: float) -> None:
    """Climb from ``theta`` to the end, the flexible classes keeping their levels."""
    rest = _FreeClasses(now)
    while rest.free.any():
        low = theta
        theta, prices = rest.climb_to_end(path, low)
        level = np.minimum(path.level(theta)[rest.index], rest.gain.max(axis=1))
        rest.level = np.where(rest.free, level, rest.level)
        rest.usable &= ~priced_resources(prices, rest.usable)
        cap = np.where(rest.usable, rest.gain, 0.0).max(axis=1)
        stopped = rest.free & (cap <= rest.level * (1 + STOP_TOLERANCE))
        if not stopped.any():
            raise SolveError("no class was stopped", status="stalled", n_classes=len(cap))
        rest.free &= ~stopped
        rest.note(theta, prices, stopped)
        bound = now.level.copy()
        bound[rest.index] = np.where(rest.free, cap, rest.level)
        path = path.within(bound)
    rest.close()


def priced_resources(prices: FloatArray, usable: BoolArray) -> BoolArray:
    """Return which usable resources have a price, apart from noise.

    Those that are exhausted already may have any price, to keep the held classes in place.
    """
    is_priced: BoolArray = usable & (prices > PRICE_TOLERANCE * prices[usable].max(initial=0.0))
    return is_priced


class _FreeClasses:
    """The classes that are not settled: some keep their levels, the free ones climb."""

    def __init__(self, now: FillingProgress) -> None:
        held, table = now.held(), now.table
        self.now = now
        self.index = np.concatenate([now.flexible, np.flatnonzero(now.free)])
        self.free = np.arange(len(self.index)) >= len(now.flexible)
        self.usable = now.usable.copy()
        self.room = now.room() + held.used
        gain = table.gain[self.index]
        self.gain = np.where(self.free[:, None] & ~self.usable, 0.0, gain)
        self.size, self.count = table.size[self.index], now.count[self.index]
        self.level = now.level[self.index]
        self.program = self._new_program()

    def climb_to_end(self, path: Path, low: float) -> tuple[float, FloatArray]:
        """Return the greatest theta whose levels fit, and prices that prove it."""
        free = np.flatnonzero(self.free)
        gain = np.where(self.usable, self.gain[free], 0.0).T
        climbing = ClimbingClasses(
            np.ascontiguousarray(gain), self.size[free], self.count[free], path, self.index[free]
        )
        holders = np.flatnonzero(~self.free)
        hulls = Hulls(np.ascontiguousarray(self.gain[holders].T)) if len(holders) else None
        prices = self.usable.astype(np.float64)
        theta = path.top
        for _ in range(_MAX_PROGRAMS):
            budget = float((self.room * prices).sum())
            if hulls is not None:
                worth = prices[:, None] * self.size[holders]
                way = hulls.segments_at(self.level[holders], worth, slopes=False)
                budget -= float((self.count[holders] * way.cost).sum())
            last, theta = theta, climbing.greatest(prices, max(budget, 0.0), low, theta)
            if theta <= low * (1 + _NO_BETTER):
                return low, prices
            vertex = self._scaled(climbing.level(theta))
            stuck = theta >= last * (1 - _NO_BETTER) and theta < path.top
            if vertex.t >= 1 - _FITS or (stuck and vertex.t >= 1 - STOP_TOLERANCE):
                return theta, prices if theta < path.top else np.zeros_like(prices)
            prices = vertex.prices
        raise SolveError("prices did not settle", status="cycling", n_classes=len(self.index))

    def _scaled(self, level: FloatArray) -> Vertex:
        """Return the vertex with the greatest t <= 1 at which t times these levels fits."""
        follows = np.zeros(len(self.index))
        follows[self.free] = level
        for slack in _SLACKS:
            # Levels are known up to rounding; held exactly they may just not fit.
            held = np.where(self.free, 0.0, self.level * (1 - slack))
            for _ in range(2):
                with suppress(SolveError):
                    vertex = self.program.maximise_level(self.count, held, follows, 1.0)
                    if vertex is None:
                        break
                    if self._reaches_levels(vertex, held + follows * vertex.t):
                        return vertex
                # A worn basis can mislead HiGHS into calling shares feasible that are not.
                self.program = self._new_program()
        raise SolveError("levels were lost", status="infeasible", n_classes=len(self.index))

    def _new_program(self) -> StageProgram:
        program = StageProgram(self.room)
        program.add(self.gain, self.size)
        return program

    def _reaches_levels(self, vertex: Vertex, level: FloatArray) -> bool:
        """Return whether the vertex really reaches these levels within the resources."""
        reached = (self.gain * vertex.total).sum(axis=1)
        wanted = self.count * level
        used = (self.size[:, None] * vertex.total).sum(axis=0)
        return bool(
            (reached >= wanted - _KEPT * np.maximum(wanted, 1.0)).all()
            and (used <= self.room + _KEPT * np.maximum(self.room, 1.0)).all()
        )

    def note(self, theta: float, prices: FloatArray, stopped: BoolArray) -> None:
        """Record a stage."""
        frozen = np.zeros(len(self.now.count), bool)
        frozen[self.index[stopped]] = True
        level = self.now.level.copy()
        level[self.index] = self.level
        self.now.note(theta, prices, frozen, level)

    def close(self) -> None:
        """Apply the tie rule to the shares, now that every level is known."""
        cost = self.now.table.cost[self.index]
        vertex = self.program.least_cost(self.count, self.level, cost)
        if not self._reaches_levels(vertex, self.level):
            vertex = self._new_program().least_cost(self.count, self.level, cost)
        self.now.share[self.index] = vertex.total / self.count[:, None]
