"""One stage of a climb for many distinct classes, exactly.

Near the stage's end the path is straight and, at the right prices, nearly every class has one
cheapest way to its level: its use of the resources is then linear in theta, it is decided. Only
the few for which two ways cost nearly the same share what the others leave. So:

1. estimate prices, which bound theta;
2. decide all classes whose cheapest way is clear, and give the others with theta to a small
   exact program, along the path's tangent, which returns a better theta and better prices;
3. check every decision and the tangent there; move who was wrong into the program, follow the
   path's bend, and repeat until no class could do better. The proof then holds for all classes.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.hull import ByteArray, Hulls
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.max_min_many.pricing import select_rows
from fairlead.solve.max_min_many.stage import FlexibleClasses
from fairlead.solve.paths.bound import ClimbingClasses
from fairlead.solve.paths.end_estimate import estimate_end
from fairlead.solve.paths.few_classes import STOP_TOLERANCE, priced_resources
from fairlead.solve.paths.path import Path

_MAX_ITERATIONS = 60
_FIRST_MARGINAL = 40
_MAX_ADDED = 60
_MAX_MARGINAL = 1500
_REGRET = 1e-12  # relative to what all capacity is worth
_BEND = 1e-10  # relative: the chord's error of a level
_AHEAD = 1e-12  # relative: so far ahead of theta the tangent is taken, past kinks
_TANGENT = 1e-7  # relative: so near a chord is the tangent
_SLACKS = (1e-14, 1e-12, 1e-10, 1e-9, 1e-8)  # relative: held levels are known up to rounding
_TIED = 1e-10  # relative: two ways cost the same
_NEAR_KINK = 16.0  # levels are known much better than prices


@dataclass(frozen=True, slots=True)
class ClimbStage:
    """The end of a stage: theta, prices, the free classes' levels and shares, and who stops."""

    index: IntArray  # the free classes' places among all
    theta: float
    prices: FloatArray
    priced: BoolArray  # resources that are exhausted
    level: FloatArray  # of the free classes, as are the next
    share: FloatArray
    stopped: BoolArray
    held_share: FloatArray  # held classes × resources
    marginal: IntArray  # free classes whose shares were found together, so may change together


def climb_stage_many(
    now: FillingProgress, path: Path, index: IntArray, rest: ClassTable, low: float
) -> ClimbStage | None:
    """Return the stage of the free classes ``index`` from theta ``low`` on, None if it stalls.

    ``rest`` is their table; the path stays within its caps.
    """
    gain = np.ascontiguousarray(rest.gain.T)
    climbing = ClimbingClasses(gain, rest.size, now.count[index], path, index)
    solver = _ClimbStageSolver(climbing, rest.cost, now.held(), now.room(), low)
    try:
        stage = solver.finished(index) if solver.settle() else None
    except (SolveError, np.linalg.LinAlgError):
        return None
    return stage if stage is not None and stage.stopped.any() else None


@dataclass(frozen=True, slots=True)
class _ClassLevels:
    """Each class's level at theta, its growth, and the two ends of its way there."""

    theta: float
    level: FloatArray
    rise: FloatArray
    low: ByteArray  # resource, -1 for idleness
    high: ByteArray
    lower: FloatArray  # share on the low end, 0 where that is idleness
    upper: FloatArray  # share on the high end
    speed: FloatArray  # d upper / d level = - d lower / d level

    @classmethod
    def of(
        cls,
        climbing: ClimbingClasses,
        theta: float,
        back: float,
        low: ByteArray,
        high: ByteArray,
    ) -> "_ClassLevels":
        """Return the stand at ``theta`` on these ways, rises taken along the chord from ``back``.

        With ``back`` next to ``theta`` they are the tangent's.
        """
        level, gain = climbing.level(theta), climbing.gain
        mixed = low >= 0
        bottom = np.where(mixed, select_rows(gain, low), 0.0)
        length = select_rows(gain, high) - bottom
        speed = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        upper = (level - bottom) * speed
        lower = np.where(mixed, 1.0 - upper, 0.0)
        if back < theta * (1 - _TANGENT):
            rise = (level - climbing.level(back)) / (theta - back)
        else:
            rise = climbing.rate(theta)
        return cls(theta, level, rise, low, high, lower, upper, speed)

    def use(self, held: FloatArray, width: int) -> tuple[FloatArray, FloatArray]:
        """Return the resources that ``held`` devices of each class use, and more per theta."""
        more = held * self.speed * self.rise
        used = _total(self.high, held * self.upper, width)
        used += _total(self.low, held * self.lower, width)
        return used, _total(self.high, more, width) - _total(self.low, more, width)

    def shares(self, width: int) -> FloatArray:
        """Return classes × resources → share."""
        rows = np.arange(len(self.level))
        share = np.zeros((len(rows), width))
        mixed = self.low >= 0
        share[rows[mixed], self.low[mixed]] = self.lower[mixed]
        share[rows, self.high] = self.upper
        return share


def _total(resource: ByteArray, amount: FloatArray, width: int) -> FloatArray:
    total: FloatArray = np.bincount(resource + 1, amount, width + 1)[1:].astype(np.float64)
    return total


class _ClimbStageSolver:
    """A stage on its way: what is decided, and the program of all that is not."""

    def __init__(
        self,
        climbing: ClimbingClasses,
        cost: FloatArray,
        held: FlexibleClasses,
        room: FloatArray,
        low: float,
    ) -> None:
        self.climbing, self.cost, self.held, self.room = climbing, cost, held, room
        self.capacity = room + held.used
        self.width = len(room)
        self.usable = climbing.gain.max(axis=1) > 0
        self.inside = np.zeros(len(climbing.size), bool)
        self.chosen = np.zeros(0, np.int64)
        self.program = StageProgram(self.capacity)
        self.program.add(held.gain, held.size)
        self._held_hulls = Hulls(np.ascontiguousarray(held.gain.T)) if len(held.size) else None
        self._rivals = (climbing.gain == climbing.cap).sum(axis=0) > 1
        self.devices = climbing.count * climbing.size
        self.low = self.back = low
        self._lookahead_step = _AHEAD
        self.bound, self.prices = estimate_end(climbing, self.usable, room, self.budget, low)
        self.theta = self.bound

    def budget(self, prices: FloatArray) -> float:
        """Return what all capacity is worth beyond the held classes' cheapest ways."""
        worth = float((self.capacity * prices).sum())
        if self._held_hulls is not None:
            held = self.held
            way = self._held_hulls.segments_at(
                held.level, prices[:, None] * held.size, slopes=False
            )
            worth -= float((held.count * way.cost).sum())
        return max(worth, 0.0)

    def settle(self) -> bool:
        """Find the stage's end; return False if that takes too much."""
        at = self._lookahead(self.bound)
        way = self.climbing.ways(self.climbing.level(at), self.prices)
        self._take(at, way.low, way.high)
        self._extend(self._least_certain(_FIRST_MARGINAL))
        for _ in range(_MAX_ITERATIONS):
            if self._solve():
                joining = self._check()
                if joining is None:
                    return True
            elif self.back > self.low:
                self.back = self.low
                self._take(self.stand.theta, self.stand.low, self.stand.high)
                continue
            else:  # the decided classes leave too little: decide fewer
                joining = self._least_certain(_MAX_ADDED)
                if not len(joining):
                    return False
            if len(self.chosen) + len(joining) > _MAX_MARGINAL:
                return False
            self._extend(joining)
        return False

    def _take(self, at: float, low: ByteArray, high: ByteArray) -> None:
        self.stand = _ClassLevels.of(self.climbing, at, self.back, low, high)

    def _check(self) -> IntArray | None:
        """Look at everyone at the program's theta and prices; return None if all is right.

        Otherwise return who must join the program, with the next stand in place.
        """
        climbing, stand, prices = self.climbing, self.stand, self.prices
        level = climbing.level(self.theta)
        chord = stand.level + stand.rise * (self.theta - stand.theta)
        bend = np.abs(level - chord) / np.maximum(level, 1e-6 * climbing.cap)
        bent = float(bend.max()) > _BEND
        at = self._lookahead(self.theta)
        if bent:
            last = self.bound
            self.bound = climbing.greatest(prices, self.budget(prices), self.low, last)
            at = self._lookahead(self.bound)
            # Newton's next step will be shorter than this one.
            self.back = max(self.low, at - 2.0 * (last - self.bound))
        way = climbing.ways(climbing.level(at), prices)
        self._take(at, stand.low, stand.high)
        upper = self.stand.upper
        lost = ~self.inside & ((upper < -1e-9) | (upper > 1 + 1e-9))
        regret = self._regret(self.stand, way.cost) * ~lost
        worth = float((self.capacity * prices).sum())
        wrong = np.flatnonzero(regret > 0.01 * _REGRET * worth)
        if float(regret.sum()) <= _REGRET * worth:
            wrong = wrong[:0]
        if lost.any():
            self._take(
                at, np.where(lost, way.low, stand.low), np.where(lost, way.high, stand.high)
            )
        if bent or lost.any() or len(wrong):
            return wrong[np.argsort(-regret[wrong], kind="stable")][:_MAX_ADDED]
        return self._unresolved_ties()

    def _unresolved_ties(self) -> IntArray | None:
        """Return who is tied and must join, with everyone else right; None if that is nobody."""
        climbing, prices, stand = self.climbing, self.prices, self.stand
        top = climbing.path.top
        if self.theta >= top * (1 - 2 * STOP_TOLERANCE) and not prices.any():
            # Everyone fits at its cap, now that the held classes have made room.
            self.theta, self.back = top, np.inf
            self._take(top, stand.low, stand.high)
            return None
        beyond = self.theta * (1 + STOP_TOLERANCE)
        if climbing.affords(prices, self.budget(prices), beyond):
            # A kink of the path stopped the program, not the resources: look beyond it.
            if self.back == np.inf:
                self._lookahead_step *= 10.0
            self.back = np.inf
            self._take(self._lookahead(self.theta), stand.low, stand.high)
            return np.zeros(0, np.int64)
        stuck = self._stopped(stand.level) & (stand.level > 0)
        tied = np.flatnonzero(stuck & ~self.inside & (self._margin(stand, prices) < _TIED))
        return tied[:_MAX_ADDED] if len(tied) else None

    def _lookahead(self, theta: float) -> float:
        top = self.climbing.path.top
        return min(max(theta, self.low) * (1 + self._lookahead_step), top * (1 - STOP_TOLERANCE))

    def _solve(self) -> bool:
        """Find theta, prices and the marginal classes' shares, the others deciding as given.

        Return False if the others leave too little for that.
        """
        climbing, held, chosen, stand = self.climbing, self.held, self.chosen, self.stand
        outside = self.devices * ~self.inside
        used, slope = stand.use(outside, self.width)
        members = float(climbing.count[stand.rise > 0].sum())
        # In units in which a class rises by 1 for 1 on average, the duals are near 1.
        unit = float((climbing.count * stand.rise).sum()) / max(members, 1.0)
        if unit <= 0:
            return False
        room = self.capacity - used + slope * stand.theta
        others = float(climbing.count[(stand.rise > 0) & ~self.inside].sum())
        self.program.set_outside_use(room, slope / unit, others)
        rise, nobody = stand.rise[chosen], np.zeros(len(held.count))
        count = np.concatenate([held.count, climbing.count[chosen]])
        base = np.concatenate([held.level, stand.level[chosen] - rise * stand.theta])
        follows = np.concatenate([nobody, rise / unit])
        for slack in _SLACKS:
            base[: len(nobody)] = held.level * (1 - slack)
            vertex = self.program.maximise_level(
                count, base, follows, 2.0 * climbing.path.top * unit
            )
            if vertex is not None or not len(nobody):
                break
        if vertex is None:
            return False
        # Slack in the held levels may lift the water over what is proved impossible.
        self.theta = min(vertex.t / unit, self.bound)
        self.prices, self.vertex = vertex.prices, vertex
        return True

    def _extend(self, chosen: IntArray) -> None:
        """Take these classes into the program."""
        if len(chosen):
            self.inside[chosen] = True
            self.chosen = np.concatenate([self.chosen, chosen])
            climbing = self.climbing
            self.program.add(climbing.gain[:, chosen].T, climbing.size[chosen])

    def _least_certain(self, wanted: int) -> IntArray:
        """Return the outside classes whose ways are least clear."""
        outside = np.flatnonzero(~self.inside)
        margin = self._margin(self.stand, self.prices)[outside]
        if len(outside) <= wanted:
            return outside
        return outside[np.argpartition(margin, wanted)[:wanted]]

    def _regret(self, stand: _ClassLevels, cost: FloatArray) -> FloatArray:
        """Return classes → what its way costs more than the cheapest."""
        climbing, prices = self.climbing, self.prices
        worth = prices[:, None] * climbing.size
        own = (
            select_rows(worth, stand.high) * stand.upper
            + select_rows(worth, stand.low) * stand.lower
        )
        return np.where(self.inside, 0.0, climbing.count * (own - cost))

    def _margin(self, stand: _ClassLevels, prices: FloatArray) -> FloatArray:
        """Return classes → relative change of prices or level that could change its way."""
        climbing, level = self.climbing, stand.level
        gain, worth = climbing.gain, prices[:, None] * climbing.size
        way = climbing.ways(level, prices)
        intercept = way.cost - way.slope * level
        support = intercept + way.slope * gain
        spare = (worth - support) / np.maximum(worth + support, 1e-200)
        rows = np.arange(len(level))
        mixed = np.flatnonzero(way.low >= 0)
        spare[gain <= 0] = np.inf
        spare[way.high, rows] = np.inf
        spare[way.low[mixed], mixed] = np.inf
        least = spare.min(axis=0)
        origin = -intercept[mixed] / np.maximum(way.cost[mixed], 1e-200)
        least[mixed] = np.minimum(least[mixed], origin)
        near = np.abs(gain / np.maximum(level, 1e-300) - 1.0).min(axis=0)
        least = np.minimum(least, _NEAR_KINK * near)
        # At its cap a class has no choice left, unless two resources give the cap.
        capped = level >= climbing.cap * (1 - _BEND)
        settled = (level <= 0) | (capped & ~self._rivals)
        return np.where(settled, np.inf, np.maximum(least, 0.0))

    def _stopped(self, level: FloatArray) -> BoolArray:
        closed = priced_resources(self.prices, self.usable)[:, None]
        cap = np.where(closed, 0.0, self.climbing.gain).max(axis=0)
        stopped: BoolArray = cap <= level * (1 + STOP_TOLERANCE)
        return stopped

    def finished(self, index: IntArray) -> ClimbStage:
        """Return the stage; if it is the last, the tie rule settles the program's shares."""
        climbing, held, chosen, stand = self.climbing, self.held, self.chosen, self.stand
        first = len(held.count)
        stopped = self._stopped(stand.level)
        share, total = stand.shares(self.width), self.vertex.total
        count = np.concatenate([held.count, climbing.count[chosen]])
        if stopped.all():
            used, _ = stand.use(self.devices * ~self.inside, self.width)
            self.program.set_outside_use(self.capacity - used, np.zeros(self.width), 0.0)
            level = np.concatenate([held.level, stand.level[chosen]])
            cost = np.concatenate([held.cost, self.cost[chosen]])
            total = self.program.least_cost(count, level, cost).total
        own = total / count[:, None]
        share[chosen] = own[first:]
        closed = priced_resources(self.prices, self.usable)
        return ClimbStage(
            index,
            self.theta,
            self.prices,
            closed,
            stand.level,
            share,
            stopped,
            own[:first],
            chosen,
        )
