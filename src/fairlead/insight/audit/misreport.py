"""Search for the most profitable misreport of a participant's speeds.

Over-reporting raises some speed-ups (speeds relative to the slowest accelerator), or the scale if
the policy depends on it, and lowers none; under-reporting lowers some and raises none. Raising
the slowest speed alone lowers every speed-up and is neither.

The search makes a given number of solves, so its result is deterministic. Each participant first
tries a few misreports: multiples on single accelerators and on all, misreports close to the
speed-ups of others, where gains often jump, and evenly distributed ones over all accelerators. The
better half of the participants tries more, and so on; the last ones improve their best misreport
step by step, on single accelerators and on pairs.

Whether a policy depends on the scale is tried first: all participants change theirs, then a few
change theirs alone and by far, since a small change may alter no share.
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
"""default number of solves of a search"""
_GRID = (2.0, 1.1, 1.4, 5.0, 1.02, 1.2, 3.0, 10.0)
"""multipliers of over-reports, the most revealing first; under-reports use their inverses"""
_MAX_LOG_MULTIPLIER = np.log(20.0)
_WIDE = np.log(5.0)
_FAR = (100.0, 1000.0)
"""further multipliers of the scale: lengths of jobs differ more than speeds"""
_SCALED_ALONE = 4
"""participants that change their scale alone, to see whether the policy depends on it"""
_CLIMBERS = 2
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""step sizes of a climb, in logarithms of multipliers"""
_EQUAL_GAIN = 0.99
"""fraction of the best gain at which a rounder misreport is preferred"""
_NEAR_OTHER = 1e-3
"""relative distance of a misreport to another participant's speed-up"""


@dataclass(frozen=True, slots=True, eq=False)
class Misreport:
    """Reported speeds of one participant, and the gain relative to a truthful report."""

    participant: int
    multipliers: FloatArray
    """accelerators → reported speed over true speed"""
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class MisreportSearchResult:
    """Best misreport on each side; None if no misreport on that side gains."""

    over: Misreport | None
    under: Misreport | None
    solves: int
    searched: int
    """participants whose misreports were tried; equal participants count once"""
    gain: dict[Side, FloatArray]
    """side → participants → highest gain found; NaN if none was tried"""


def search(
    evaluator: MisreportEvaluator,
    *,
    solves: int = SOLVES,
    progress: Callable[[int, int], None] | None = None,
) -> MisreportSearchResult:
    """Return the most profitable over-report and under-report found with about ``solves``."""
    state = _MisreportSearch(evaluator, solves, progress)
    for i, side in enumerate(SIDES):
        state.run(side, state.done + (state.solves - state.done) // (2 - i))
    over, under = (state.confirmed(side) for side in SIDES)
    return MisreportSearchResult(over, under, state.done, len(state.searched), state.gains())


class _MisreportSearch:
    """State of a search: solves done, and the best misreports so far."""

    def __init__(
        self,
        evaluator: MisreportEvaluator,
        solves: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._evaluator = evaluator
        self._progress = progress
        self._first_equal = evaluator.first_equal()
        self._best: dict[tuple[Side, int], tuple[float, FloatArray]] = {}
        self.done = 0
        self._scaled = self._depends_on_scale()
        # However long that took, as many misreports are tried.
        self.solves = solves + self.done - 1
        slowest = evaluator.slowest().tolist()
        self._spaces = {
            i: _MisreportSpace.of(evaluator.speed(i), slowest[i], self._scaled)
            for i in set(self._first_equal.tolist())
        }
        self.searched = self._chosen()

    def _depends_on_scale(self) -> bool:
        """Return whether the policy depends on absolute speeds, beyond the speed-ups."""
        for factors in _scales(self._first_equal):
            self.done += 1
            try:
                if self._evaluator.depends_on_scale(factors):
                    return True
            except SolveError:
                continue  # without an allocation nothing is known
        return False

    def _chosen(self) -> list[int]:
        """Return the participants to search: all distinct ones, or a spread sample of too many."""
        able = [i for i, space in sorted(self._spaces.items()) if space.directions]
        # Two sides, two multipliers each.
        cost = 4 * max((len(self._spaces[i].directions) for i in able), default=1)
        limit = max(self.solves // cost, 1)
        if len(able) <= limit:
            return able
        able.sort(key=lambda i: self._spaces[i].steepest)
        return sorted(able[i] for i in np.linspace(0, len(able) - 1, limit).astype(int).tolist())

    def run(self, side: Side, until: int) -> None:
        """Search the best misreports of a side until ``until`` solves are done."""
        left = list(self.searched)
        candidates = {i: self._candidates(side, i) for i in left}
        rounds = max((len(left) - 1).bit_length() - 1, 0) + 1
        climbing = (until - self.done) // 3
        for number in range(rounds):
            room = (until - climbing - self.done) // (rounds - number)
            for i in left:
                for logs in islice(candidates[i], max(room // len(left), 2)):
                    self._try(side, i, logs)
            left.sort(key=lambda i: (-self._best[side, i][0], i))
            left = left[: max((len(left) + 1) // 2, _CLIMBERS)]
        for rank, i in enumerate(left[:_CLIMBERS]):
            self._climb(side, i, self.done + (until - self.done) // (_CLIMBERS - rank))

    def _candidates(self, side: Side, i: int) -> Iterator[FloatArray]:
        """Yield misreports of a participant, the most revealing first, all sources in turn."""
        sign = 1.0 if side == "over" else -1.0
        space = self._spaces[i]
        grid = (sign * np.log(factor) * way for factor in _GRID for way in space.directions)
        yield from islice(grid, len(space.directions))
        others = (self._spaces[k] for k in self.searched if k != i)
        near = [logs for other in others for logs in space.near(other) if (sign * logs >= 0).all()]
        near.sort(key=lambda logs: float(np.abs(logs).sum()))
        sources = [
            grid,
            (sign * np.log(factor) * way for factor in _FAR for way in space.scale),
            iter(near),
            (sign * point for point in _low_discrepancy_points(len(space.directions[0]))),
        ]
        while sources:
            for source in list(sources):
                logs = next(source, None)
                if logs is None:
                    sources.remove(source)
                else:
                    yield logs

    def _climb(self, side: Side, i: int, until: int) -> None:
        sign, limit = 1.0 if side == "over" else -1.0, self._spaces[i].limit
        for step in _STEPS:
            better = True
            while better:
                before, at = self._best[side, i]
                for move in _moves(len(at)):
                    if self.done >= until:
                        return
                    logs = at + step * move
                    logs = sign * np.clip(sign * logs, 0.0, limit)
                    if not np.array_equal(logs, at):
                        self._try(side, i, logs)
                better = self._best[side, i][0] > before + 1e-9

    def _try(self, side: Side, i: int, logs: FloatArray) -> None:
        multipliers = self._spaces[i].multipliers(logs)
        try:
            gain = self._evaluator.gain(i, multipliers)
        except SolveError:
            gain = -1.0  # without an allocation there is no gain
        self.done += 1
        if self._progress:
            self._progress(min(self.done, self.solves), self.solves)
        held = self._best.get((side, i))
        if held is None or gain > held[0]:
            self._best[side, i] = gain, logs

    def confirmed(self, side: Side) -> Misreport | None:
        """Return the best misreport with its gain solved once more; None if none gains.

        A rounder misreport, closer to the truth, is preferred if it gains almost as much.
        """
        if not self.searched:
            return None
        best = min(self.searched, key=lambda i: (-self._best[side, i][0], i))
        gain, logs = self._best[side, best]
        if gain <= 1e-9:
            return None
        exact = self._spaces[best].multipliers(logs)
        for digits in (2, 3, 4):
            rounded = _shrunk_multipliers(exact, digits)
            self.done += 1
            try:
                confirmed = self._evaluator.gain(best, rounded)
            except SolveError:
                continue
            if confirmed >= _EQUAL_GAIN * gain:
                return Misreport(best, rounded, confirmed)
        self.done += 1
        return Misreport(best, exact, self._evaluator.gain(best, exact))

    def gains(self) -> dict[Side, FloatArray]:
        """Return side → participants → the highest gain found for it or an equal participant."""
        searched = set(self.searched)
        return {
            side: np.array(
                [
                    self._best[side, i][0] if i in searched else np.nan
                    for i in self._first_equal.tolist()
                ]
            )
            for side in SIDES
        }


@dataclass(frozen=True, slots=True, eq=False)
class _MisreportSpace:
    """Space of one participant's misreports: logarithms of the multipliers on its accelerators,
    followed by that of the scale if the policy depends on it."""

    log_speedup: FloatArray
    """accelerators → logarithm of the speed-up; NaN if the participant cannot run there"""
    slowest: int
    """reference accelerator of the speed-ups"""
    free: IntArray
    """the other accelerators on which it runs"""
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
    def scale(self) -> FloatArray:
        """The direction of the scale, as the only row; no row if the policy ignores it."""
        width = len(self.free) + self.scaled
        return np.eye(width)[len(self.free) :]

    @property
    def limit(self) -> FloatArray:
        """The largest logarithm of each multiplier."""
        speedups = np.full(len(self.free), _MAX_LOG_MULTIPLIER)
        return np.append(speedups, [np.log(_FAR[-1])] * self.scaled)

    @property
    def steepest(self) -> float:
        return float(np.nanmax(self.log_speedup))

    def multipliers(self, logs: FloatArray) -> FloatArray:
        """Return accelerators → multiplier."""
        log = np.zeros(len(self.log_speedup))
        log[self.free] = logs[: len(self.free)]
        return np.exp(log + (logs[-1] if self.scaled else 0.0))

    def near(self, other: "_MisreportSpace") -> Iterator[FloatArray]:
        """Yield misreports close to another's speed-ups, on all or single accelerators."""
        gap = other.log_speedup - other.log_speedup[self.slowest] - self.log_speedup
        logs = np.nan_to_num(gap[self.free])
        whole = np.concatenate([logs, [0.0]]) if self.scaled else logs
        for way in self.directions:
            part = whole * way
            for close in (1 - _NEAR_OTHER, 1 + _NEAR_OTHER):
                if part.any():
                    yield np.where(part != 0, part + np.log(close), 0.0)


def _scales(first_equal: IntArray) -> Iterator[FloatArray]:
    """Yield multipliers of participants' scales: different ones of all, then far ones of one."""
    n = len(first_equal)
    yield np.array([2.0, 0.5, 3.0])[np.arange(n) % 3]
    distinct = np.unique(first_equal)
    spread = np.linspace(0, len(distinct) - 1, min(len(distinct), _SCALED_ALONE)).astype(int)
    for i in distinct[spread].tolist():
        for factor in (1 / _FAR[-1], _FAR[-1]):
            yield np.where(np.arange(n) == i, factor, 1.0)


def _low_discrepancy_points(width: int) -> Iterator[FloatArray]:
    """Yield points that cover a cube more and more densely; none in one dimension."""
    root = 2.0
    for _ in range(60):  # the root of x^(d + 1) = x + 1: multiples of its powers stay apart
        root = (1.0 + root) ** (1.0 / (width + 1))
    powers = root ** -np.arange(1.0, width + 1)
    for count in range(1, 10_000 if width > 1 else 0):
        yield _WIDE * ((0.5 + count * powers) % 1.0)


def _shrunk_multipliers(exact: FloatArray, digits: int) -> FloatArray:
    """Return multipliers rounded towards 1 to this many digits."""
    unit = 10.0 ** (np.floor(np.log10(exact)) - digits + 1)
    rounded = np.where(exact > 1, np.floor(exact / unit), np.ceil(exact / unit)) * unit
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
