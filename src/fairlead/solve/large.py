"""The whole water-filling for many distinct classes: ``sifting`` stage by stage.

A stage's frozen classes need all of what has a price, and have no other way to their levels; so
what remains is a problem of the same kind with fewer classes, the unpriced resources, and what
the frozen classes leave of these.
"""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.filling import DUAL_TOLERANCE, FilledStage, Filling, fill
from fairlead.solve.pool import Pool
from fairlead.solve.sifting import Held, sift
from fairlead.solve.simplex import StageProgram
from fairlead.solve.table import ClassTable

# Prices of earlier stages must outweigh a later stage's, to keep its frozen classes in place.
_PRECEDENCE = 1e3
# Simplex alone takes minutes beyond.
_MOST_BY_SIMPLEX = 5000
_MOST_SETTLED = 1000


def fill_many(
    table: ClassTable, count: FloatArray, capacity: FloatArray, few: int
) -> tuple[FloatArray, list[FilledStage]]:
    """Return classes × resources → share of a member, and the stages that led there.

    Once at most ``few`` classes are left, or if too many are marginal, simplex takes over.
    """
    now = _Progress(table, count, capacity)
    while now.free.any():
        index = np.flatnonzero(now.free)
        rest = table if now.free.all() else table.rows(index, now.usable)
        room = now.room()
        if rest.fits(rest.best * count[index, None], room):
            now.share[index] = rest.best
            now.flexible = np.concatenate([now.flexible, index[~rest.alone]])
            now.note(
                FilledStage(float(rest.cap.max()), np.zeros(len(room)), now.free[index]),
                index,
                rest.cap,
            )
            break
        stage = None
        if len(index) > few:
            pool = Pool(np.ascontiguousarray(rest.gain.T), rest.size, count[index], room)
            stage = sift(pool, rest.cost, now.held())
        if stage is None:
            if len(index) > _MOST_BY_SIMPLEX:
                why = "too many marginal classes"
                raise SolveError(why, status="stalled", n_classes=len(index))
            _fill_few(now, index)
            return now.share, now.stages
        now.share[now.flexible] = stage.held_share
        now.share[index[stage.frozen]] = stage.share[stage.frozen]
        now.note(FilledStage(stage.t, stage.prices, stage.frozen), index, rest.cap)
        tied = index[stage.marginal]
        now.flexible = np.concatenate([now.flexible, tied[~now.free[tied]]])
        now.usable = now.usable & (stage.prices <= DUAL_TOLERANCE)
    if len(now.stages) > 1 and 0 < len(now.flexible) <= _MOST_SETTLED:
        _settle(now)
    return now.share, now.stages


class _Progress:
    """What has been frozen so far, and which of it may yet move."""

    def __init__(self, table: ClassTable, count: FloatArray, capacity: FloatArray) -> None:
        self.table, self.count, self.capacity = table, count, capacity
        self.share = np.zeros_like(table.gain)
        self.level = np.zeros(len(count))
        self.free = count > 0
        self.usable = capacity > 0
        self.flexible = np.zeros(0, np.int64)  # frozen classes whose shares are not settled
        self.stages: list[FilledStage] = []

    def room(self) -> FloatArray:
        """Return what the frozen classes leave of the resources."""
        if not self.stages:
            return self.capacity
        held = (self.count * self.table.size * ~self.free)[:, None]
        left: FloatArray = np.maximum(self.capacity - (held * self.share).sum(axis=0), 0.0)
        return left

    def held(self) -> Held:
        """Return the frozen classes that may yet move."""
        who, table = self.flexible, self.table
        count, size = self.count[who], table.size[who]
        used = ((count * size)[:, None] * self.share[who]).sum(axis=0)
        return Held(table.gain[who], table.cost[who], size, count, self.level[who], used)

    def note(self, stage: FilledStage, index: IntArray, cap: FloatArray) -> None:
        """Record a stage of the classes ``index`` as one of all, its prices after earlier ones."""
        frozen = np.zeros(len(self.count), bool)
        frozen[index[stage.frozen]] = True
        self.level[frozen] = np.minimum(stage.t, cap)[stage.frozen]
        self.free = self.free & ~frozen
        prices = stage.prices
        if self.stages and self.stages[-1].prices.any():
            earlier = self.stages[-1].prices
            weight = _PRECEDENCE * max(float(prices.max()), 1e-300) / float(earlier.max())
            prices = prices + weight * earlier if prices.any() else earlier
        self.stages.append(FilledStage(stage.t, prices, frozen))


def _settle(now: _Progress) -> None:
    """Apply the tie rule to all classes that may move, now that every level is known."""
    who, held = now.flexible, now.held()
    program = StageProgram(now.room() + held.used)
    program.add(held.gain, held.size)
    total = program.least_cost(held.count, held.level, held.cost).total
    now.share[who] = total / held.count[:, None]


def _fill_few(now: _Progress, index: IntArray) -> None:
    """Fill the classes ``index`` by simplex, the flexible ones keeping their levels."""
    held, table = now.held(), now.table
    who = np.concatenate([now.flexible, index])
    rows = table.rows(who, now.capacity > 0)
    first = len(now.flexible)
    free = np.arange(len(who)) >= first
    rows = rows.without(~now.usable, free)
    room = now.room() + held.used
    program = StageProgram(room)
    program.add(rows.gain, rows.size)
    count = now.count[who]
    state = Filling(program, rows, count, room, free, now.level[who])
    loose = program.loose(count <= 0, rows.gain <= 0)
    guess = (rows.first_guess(count * free, now.room()),) if not now.stages else ()
    total, stages = fill(state, loose, guess or (now.stages[-1].t,))
    now.share[who] = total / count[:, None]
    for stage in stages:
        now.note(FilledStage(stage.t, stage.prices, stage.frozen[first:]), index, rows.cap[first:])
