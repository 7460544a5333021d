"""One stage of the water-filling for many distinct classes, exactly.

At the right prices nearly every class has one cheapest way to the water's level, and its use of
the resources is then linear in t: it is decided. Only the few for which two ways cost nearly
the same share what the others leave. So:

1. estimate prices (``estimate``);
2. decide all classes whose cheapest way is clear, and give the others with t to a small exact
   program, which also returns better prices;
3. check every decision at those prices, move the ones that were wrong into the program, and
   repeat until nobody could do better. What is proved then is proved for all classes.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import (
    DUAL_TOLERANCE,
    Filling,
    fill_stage,
    is_undetermined,
)
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.price_estimate import estimate
from fairlead.solve.max_min_many.pricing import Decision, Pool

_MAX_ITERATIONS = 40
_MANY = 50_000
_UNCLEAR = 32  # one class in so many
_FIRST_MARGINAL = 40
_MAX_ADDED = 60
_MAX_WRONG = 400
_MAX_RETRIES = 2
_MAX_MARGINAL = 1500
_REGRET = 1e-12  # relative to what all capacity is worth
_TIED = 1e-10  # relative: two ways cost the same


@dataclass(frozen=True, slots=True)
class Held:
    """Classes frozen before that may yet reach their levels in other ways."""

    gain: FloatArray  # classes × resources
    cost: FloatArray  # classes × resources, for the tie rule
    size: FloatArray
    count: FloatArray
    level: FloatArray
    used: FloatArray  # resources: what they use now, on top of the pool's capacity


@dataclass(frozen=True, slots=True)
class ManyClassStage:
    """The stage's level and prices, everyone's share then, and who is frozen."""

    t: float
    prices: FloatArray
    share: FloatArray  # classes × resources
    held_share: FloatArray  # held classes × resources
    frozen: BoolArray
    marginal: IntArray  # classes whose shares were found together, so may change together


def solve_stage_many(pool: Pool, cost: FloatArray, held: Held) -> ManyClassStage | None:
    """Return the stage of all classes in the pool, or None if too many of them are marginal.

    ``cost`` (classes × resources) is the tie rule's.
    """
    decision = pool.decide(*estimate(pool))
    if len(pool.size) > _MANY:
        better = _refine_on_subset(pool, cost, held, decision)
        stage = None if better is None else _solve_stage_from(pool, cost, held, *better)
        if stage is not None:
            return stage
    return _solve_stage_from(pool, cost, held, decision)


def _refine_on_subset(
    pool: Pool, cost: FloatArray, held: Held, decision: Decision
) -> tuple[Decision, IntArray] | None:
    """Return a better decision, and who was marginal for it.

    It is exact for the least clear classes, the others deciding as before: checking everyone
    again and again would take most of the time when only these few change.
    """
    near = np.sort(_least(pool.margin(decision), len(pool.size) // _UNCLEAR))
    part, among = pool.beside(decision, near)
    found = _solve_stage_from(part, cost[near], held, among)
    if found is None:
        return None
    return pool.decide(found.t, found.prices), near[found.marginal]


def _solve_stage_from(
    pool: Pool,
    cost: FloatArray,
    held: Held,
    decision: Decision,
    marginal: IntArray | None = None,
) -> ManyClassStage | None:
    """Return the exact stage, starting from a decision and who may be marginal for it.

    With the marginal classes given it gives up as soon as many others prove wrong.
    """
    program = _MarginalProgram(pool, cost, held)
    patient = marginal is None
    if marginal is None:
        marginal = _least(pool.margin(decision), _FIRST_MARGINAL)
    program.extend(marginal)
    solved, retries = program.solve(decision), _MAX_RETRIES
    for _ in range(_MAX_ITERATIONS):
        if solved:
            now = pool.decide(program.t, program.prices)
            wrong = _wrong_decisions(program, decision, now)
            if not len(wrong):
                return program.stage(decision, now)
            if len(wrong) > _MAX_WRONG and not patient:
                return None
            if len(wrong) > _MAX_WRONG and retries:
                retries -= 1
                margin = pool.margin(now)
                program.extend(_least(np.where(program.inside, np.inf, margin), _FIRST_MARGINAL))
                if program.improves(now):
                    decision = now
                    continue
        else:  # the decided classes leave too little: decide fewer
            margin = pool.margin(decision)
            wrong = _least(np.where(program.inside, np.inf, margin), _MAX_ADDED)
        wrong = wrong[~program.inside[wrong]][:_MAX_ADDED]
        if len(program.chosen) + len(wrong) > _MAX_MARGINAL:
            return None
        program.extend(wrong)
        solved = program.solve(decision)
    return None


def _wrong_decisions(program: "_MarginalProgram", decision: Decision, now: Decision) -> IntArray:
    """Return who should join the program: those who decided wrongly, worst first, or are tied.

    The others keep their decisions, so that the program only ever gains ways to do better.
    """
    pool = program.pool
    worth = float((program.prices * (pool.capacity - pool.slope * now.t)).sum())
    regret = np.where(program.inside, 0.0, pool.regret(decision, now))
    if float(regret.sum()) > _REGRET * worth or worth <= 0:
        wrong = np.flatnonzero(regret > 0.01 * _REGRET * worth)
        return wrong[np.argsort(-regret[wrong], kind="stable")]
    stuck = (now.way.slope > DUAL_TOLERANCE) | (pool.cap <= now.t)
    return np.flatnonzero(stuck & ~program.inside & (pool.margin(now) < _TIED))


def _least(margin: FloatArray, wanted: int) -> IntArray:
    if len(margin) <= wanted:
        return np.arange(len(margin))
    return np.argpartition(margin, wanted)[:wanted]


class _MarginalProgram:
    """The exact program of marginal and held classes, next to decided ones linear in t."""

    def __init__(self, pool: Pool, cost: FloatArray, held: Held) -> None:
        self.pool, self.cost, self.held = pool, cost, held
        self.inside = np.zeros(len(pool.size), bool)
        self.chosen = np.zeros(0, np.int64)
        self.program = StageProgram(pool.capacity)
        self.program.add(held.gain, held.size)
        self.t = 0.0
        self.prices = np.zeros(len(pool.capacity))

    def extend(self, chosen: IntArray) -> None:
        """Take these classes in."""
        pool, held = self.pool, self.held
        self.inside[chosen] = True
        self.chosen = np.concatenate([self.chosen, chosen])
        self.program.add(pool.gain[:, chosen].T, pool.size[chosen])
        gain = np.concatenate([held.gain, pool.gain[:, self.chosen].T])
        size = np.concatenate([held.size, pool.size[self.chosen]])
        cost = np.concatenate([held.cost, self.cost[self.chosen]])
        is_open = pool.gain.max(axis=1) > 0
        self.table = ClassTable.given(gain, size, cost, is_open, 2.0 * float(pool.cap.max()))

    def solve(self, decision: Decision) -> bool:
        """Find t, prices and the marginal classes' shares, the others deciding as given.

        Return False if the others leave too little for that.
        """
        pool, held = self.pool, self.held
        used, slope = pool.response(decision, ~self.inside)
        room = pool.capacity + held.used - used + slope * decision.t
        slope = slope + pool.slope
        rising = pool.rising + float(pool.count[(decision.rate > 0) & ~self.inside].sum())
        self.program.set_outside_use(room, slope, rising)
        count = np.concatenate([held.count, pool.count[self.chosen]])
        level = np.concatenate([held.level, np.zeros(len(self.chosen))])
        free = np.arange(len(count)) >= len(held.count)
        self.state = Filling(self.program, self.table, count, room, free, level)
        try:
            self.found, self.vertex = fill_stage(self.state, decision.t)
        except SolveError:
            return False
        self.t, self.prices = self.found.t, self.found.prices
        return True

    def improves(self, decision: Decision) -> bool:
        """Solve with other decisions; return whether the water stands higher with them."""
        before = self.t
        return self.solve(decision) and self.t > before

    def stage(self, decision: Decision, now: Decision) -> ManyClassStage:
        """Return the whole stage; if it is the last, the tie rule settles the program's shares."""
        pool, state, first = self.pool, self.state, len(self.held.count)
        share = decision.shares(self.t, pool.cap, len(pool.gain))
        frozen = (now.way.slope > DUAL_TOLERANCE) | (pool.cap <= self.t)
        frozen[self.chosen] = self.found.frozen[first:]
        total = self.vertex.total
        state.level = np.where(state.free, np.minimum(self.t, self.table.cap), state.level)
        loose = self.program.loose(state.count <= 0, self.table.gain <= 0)
        loose &= np.abs(self.vertex.dual) <= DUAL_TOLERANCE
        if frozen.all() and is_undetermined(state, loose):
            cost = self.table.cost
            total = self.program.least_cost(state.count, state.level, cost, self.t).total
        own = total / state.count[:, None]
        share[self.chosen] = own[first:]
        return ManyClassStage(self.t, self.prices, share, own[:first], frozen, self.chosen)
