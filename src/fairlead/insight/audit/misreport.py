"""The most that anybody gains by reporting other speeds than its own.

Over-reporting raises some speed-ups (speeds relative to the slowest accelerator),
or the scale where a policy sees it, and lowers none; under-reporting lowers some and raises
none. Raising the slowest speed alone lowers every speed-up: it is neither.

The search is made of a given number of solves, so that its result is always the same. Everybody
tells a few lies: multiples on single accelerators and on all, lies just beside the speed-ups of
others, where gains often jump, and lies about all accelerators that cover the possible ones
evenly. The half who gained most tell some more, and so on; the last ones improve their best lie
step by step, on single accelerators and on pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Literal

import numpy as np

from fairlead.insight.audit.reported_speeds import MisreportEvaluator
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError

Side = Literal["over", "under"]
SIDES: tuple[Side, ...] = ("over", "under")
SOLVES = 600
"""about how many times a search solves"""
_GRID = (2.0, 1.1, 1.4, 5.0, 1.02, 1.2, 3.0, 10.0)
"""multipliers of over-reports, the most telling first; one over them for under-reports"""
_MAX_LOG_MULTIPLIER = np.log(20.0)
_WIDE = np.log(5.0)
_CLIMBERS = 2
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""by how much a climb changes logarithms"""
_AS_GOOD = 0.99
_NEAR_OTHER = 1e-3
"""how close a lie comes to another's speed-up"""


@dataclass(frozen=True, slots=True, eq=False)
class Misreport:
    """A lie and what it gains, relative to what the truth gives."""

    who: int
    times: FloatArray
    """accelerators → reported speed over true speed"""
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class Lies:
    """What the search found: None where no lie on that side gains anything."""

    over: Misreport | None
    under: Misreport | None
    solves: int
    asked: int
    """participants whose lies were tried, alike ones once"""
    gain: dict[Side, FloatArray]
    """side → participants → greatest gain found; not a number where none was tried"""


def search(
    court: MisreportEvaluator,
    *,
    solves: int = SOLVES,
    progress: Callable[[int, int], None] | None = None,
) -> Lies:
    """Return the most profitable over-report and under-report found in so many solves."""
    found = _Search(court, solves, progress)
    for i, side in enumerate(SIDES):
        found.run(side, found.done + (solves - found.done) // (2 - i))
    over, under = (found.confirmed(side) for side in SIDES)
    return Lies(over, under, found.done, len(found.asked), found.gains())


class _Search:
    """A search under way: what it may still spend, and the best lies so far."""

    def __init__(
        self, court: MisreportEvaluator, solves: int, progress: Callable[[int, int], None] | None
    ) -> None:
        self._court = court
        self._solves = solves
        self._progress = progress
        self._alike = court.alike()
        self._best: dict[tuple[Side, int], tuple[float, FloatArray]] = {}
        self.done = 1
        self._scaled = court.depends_on_scale()
        slowest = court.slowest().tolist()
        self._views = {
            i: _MisreportSpace.of(court.speed(i), slowest[i], self._scaled)
            for i in set(self._alike.tolist())
        }
        self.asked = self._chosen()

    def _chosen(self) -> list[int]:
        """Return whom to ask: all who are different, or if too many, some of every speed-up."""
        able = [i for i, view in sorted(self._views.items()) if view.directions]
        # Two sides, two multipliers each.
        cost = 4 * max((len(self._views[i].directions) for i in able), default=1)
        most = max(self._solves // cost, 1)
        if len(able) <= most:
            return able
        able.sort(key=lambda i: self._views[i].steepest)
        return sorted(able[i] for i in np.linspace(0, len(able) - 1, most).astype(int).tolist())

    def run(self, side: Side, until: int) -> None:
        """Find the best lies of a side, until so many solves."""
        left = list(self.asked)
        lies = {i: self._lies(side, i) for i in left}
        rounds = max((len(left) - 1).bit_length() - 1, 0) + 1
        climbing = (until - self.done) // 3
        for number in range(rounds):
            room = (until - climbing - self.done) // (rounds - number)
            for i in left:
                for lie in islice(lies[i], max(room // len(left), 2)):
                    self._try(side, i, lie)
            left.sort(key=lambda i: (-self._best[side, i][0], i))
            left = left[: max((len(left) + 1) // 2, _CLIMBERS)]
        for rank, i in enumerate(left[:_CLIMBERS]):
            self._climb(side, i, self.done + (until - self.done) // (_CLIMBERS - rank))

    def _lies(self, side: Side, i: int) -> Iterator[FloatArray]:
        """Yield lies of a participant, the most telling first and all kinds in turn."""
        sign = 1.0 if side == "over" else -1.0
        view = self._views[i]
        grid = (sign * np.log(times) * way for times in _GRID for way in view.directions)
        yield from islice(grid, len(view.directions))
        others = (self._views[k] for k in self.asked if k != i)
        beside = [lie for other in others for lie in view.beside(other) if (sign * lie >= 0).all()]
        beside.sort(key=lambda lie: float(np.abs(lie).sum()))
        kinds = [
            grid,
            iter(beside),
            (sign * point for point in _low_discrepancy_points(len(view.directions[0]))),
        ]
        while kinds:
            for kind in list(kinds):
                lie = next(kind, None)
                if lie is None:
                    kinds.remove(kind)
                else:
                    yield lie

    def _climb(self, side: Side, i: int, until: int) -> None:
        sign = 1.0 if side == "over" else -1.0
        for step in _STEPS:
            better = True
            while better:
                before, at = self._best[side, i]
                for move in _moves(len(at)):
                    if self.done >= until:
                        return
                    lie = at + step * move
                    lie = sign * np.clip(sign * lie, 0.0, _MAX_LOG_MULTIPLIER)
                    if not np.array_equal(lie, at):
                        self._try(side, i, lie)
                better = self._best[side, i][0] > before + 1e-9

    def _try(self, side: Side, i: int, lie: FloatArray) -> None:
        times = self._views[i].times(lie)
        try:
            gain = self._court.gain(i, times)
        except SolveError:
            gain = -1.0  # a lie that leaves no allocation at all is worth nothing
        self.done += 1
        if self._progress:
            self._progress(min(self.done, self._solves), self._solves)
        held = self._best.get((side, i))
        if held is None or gain > held[0]:
            self._best[side, i] = gain, lie

    def confirmed(self, side: Side) -> Misreport | None:
        """Return the best lie with the gain of one more solve, None where none gains.

        A rounder lie, nearer to the truth, is taken for it that gains all but as much.
        """
        if not self.asked:
            return None
        who = min(self.asked, key=lambda i: (-self._best[side, i][0], i))
        gain, lie = self._best[side, who]
        if gain <= 1e-9:
            return None
        exact = self._views[who].times(lie)
        for digits in (2, 3, 4):
            times = _towards_one(exact, digits)
            self.done += 1
            try:
                found = self._court.gain(who, times)
            except SolveError:
                continue
            if found >= _AS_GOOD * gain:
                return Misreport(who, times, found)
        self.done += 1
        return Misreport(who, exact, self._court.gain(who, exact))

    def gains(self) -> dict[Side, FloatArray]:
        """Return side → participants → the greatest gain found for it or one like it."""
        asked = set(self.asked)
        return {
            side: np.array(
                [self._best[side, i][0] if i in asked else np.nan for i in self._alike.tolist()]
            )
            for side in SIDES
        }


@dataclass(frozen=True, slots=True, eq=False)
class _MisreportSpace:
    """The lies open to one participant: logarithms of multipliers on the accelerators it may
    lie about, and of the scale in the last place where the policy sees that."""

    log_speedup: FloatArray
    """accelerators → logarithm of its speed-up; not a number where it does not run"""
    slowest: int
    """the accelerator that speed-ups are relative to"""
    free: IntArray
    """the other accelerators that it runs on"""
    scaled: bool
    directions: tuple[FloatArray, ...]

    @classmethod
    def of(cls, speed: FloatArray, slowest: int, scaled: bool) -> "_MisreportSpace":
        with np.errstate(divide="ignore"):
            log = np.where(speed > 0, np.log(speed), np.nan)
        free = np.array([j for j in np.flatnonzero(speed > 0) if j != slowest], np.int64)
        width = len(free) + scaled
        directions = list(np.eye(width))
        if len(free) > 1:
            directions.append(np.array([1.0] * len(free) + [0.0] * scaled))
        return cls(log - log[slowest], slowest, free, scaled, tuple(directions))

    @property
    def steepest(self) -> float:
        return float(np.nanmax(self.log_speedup))

    def times(self, lie: FloatArray) -> FloatArray:
        """Return accelerators → multiplier."""
        times = np.zeros(len(self.log_speedup))
        times[self.free] = lie[: len(self.free)]
        return np.exp(times + (lie[-1] if self.scaled else 0.0))

    def beside(self, other: "_MisreportSpace") -> Iterator[FloatArray]:
        """Yield lies that come close to the speed-ups of somebody else, all or some of them."""
        gap = other.log_speedup - other.log_speedup[self.slowest] - self.log_speedup
        lie = np.nan_to_num(gap[self.free])
        whole = np.concatenate([lie, [0.0]]) if self.scaled else lie
        for way in self.directions:
            part = whole * way
            for close in (1 - _NEAR_OTHER, 1 + _NEAR_OTHER):
                if part.any():
                    yield np.where(part != 0, part + np.log(close), 0.0)


def _low_discrepancy_points(width: int) -> Iterator[FloatArray]:
    """Yield points that cover a cube more and more densely; none where one line is all."""
    root = 2.0
    for _ in range(60):  # the root of x^(d + 1) = x + 1: multiples of its powers keep apart
        root = (1.0 + root) ** (1.0 / (width + 1))
    powers = root ** -np.arange(1.0, width + 1)
    for count in range(1, 10_000 if width > 1 else 0):
        yield _WIDE * ((0.5 + count * powers) % 1.0)


def _towards_one(times: FloatArray, digits: int) -> FloatArray:
    unit = 10.0 ** (np.floor(np.log10(times)) - digits + 1)
    rounded = np.where(times > 1, np.floor(times / unit), np.ceil(times / unit)) * unit
    return np.array([float(f"{x:.{digits}g}") for x in rounded.tolist()])


def _moves(width: int) -> Iterator[FloatArray]:
    """Yield steps along single coordinates, then along pairs of them."""
    unit = np.eye(width)
    for i in range(width):
        yield unit[i]
        yield -unit[i]
    for i, j in combinations(range(width), 2):
        for a, b in ((1, 1), (-1, -1), (1, -1), (-1, 1)):
            yield a * unit[i] + b * unit[j]
