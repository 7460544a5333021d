"""One stage of the water-filling for many distinct classes, exactly.

At the right prices nearly every class has one cheapest way to the water's level, and its use of
the resources is then linear in t: it is decided. Only the few for which two ways cost nearly
the same share what the others leave. So:

1. estimate prices (``estimate``);
2. decide all classes whose cheapest way is clear, and give the others with t to a small exact
   program, which also returns better prices;
3. check every decision at those prices, move the ones that were wrong into the program, and
   repeat until no class could do better. The proof then holds for all classes.
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
from fairlead.solve.max_min_many.pricing import Decision, StageClasses

_MAX_ITERATIONS = 40
_FIRST_MARGINAL = 40
_UNCLEAR = 1000  # one class in so many is marginal at first, too
_MAX_ADDED = 60
_MAX_WRONG = 400
_MAX_RETRIES = 2
_MAX_MARGINAL = 1500
_REGRET = 1e-12  # relative to what all capacity is worth
_TIED = 1e-10  # relative: two ways cost the same


@dataclass(frozen=True, slots=True)
class FlexibleClasses:
    """Classes frozen before that may yet reach their levels in other ways."""

    gain: FloatArray  # classes × resources
    cost: FloatArray  # classes × resources, for the tie rule
    size: FloatArray
    count: FloatArray
    level: FloatArray
    used: FloatArray  # resources: what they use now, on top of the classes's capacity


@dataclass(frozen=True, slots=True)
class ManyClassStage:
    """The stage's level and prices, the shares then, and the frozen classes."""

    t: float
    prices: FloatArray
    share: FloatArray  # classes × resources
    held_share: FloatArray  # held classes × resources
    frozen: BoolArray
    marginal: IntArray  # classes whose shares were found together, so may change together


def solve_stage_many(
    classes: StageClasses, cost: FloatArray, held: FlexibleClasses
) -> ManyClassStage | None:
    """Return the stage of all these classes, or None if too many of them are marginal.

    ``cost`` (classes × resources) is the tie rule's.
    """
    decision = classes.decide(*estimate(classes))
    program = _MarginalProgram(classes, cost, held)
    first = min(max(_FIRST_MARGINAL, len(classes.size) // _UNCLEAR), _MAX_WRONG)
    program.extend(_smallest(classes.margin(decision), first))
    solved, retries, added = program.solve(decision), _MAX_RETRIES, _MAX_ADDED
    for _ in range(_MAX_ITERATIONS):
        if solved:
            now = classes.decide(program.t, program.prices)
            wrong = _wrong_decisions(program, decision, now)
            if not len(wrong):
                return program.stage(decision, now)
            if len(wrong) > _MAX_WRONG and retries:
                retries -= 1
                margin = classes.margin(now)
                program.extend(
                    _smallest(np.where(program.inside, np.inf, margin), _FIRST_MARGINAL)
                )
                if program.improves(now):
                    decision = now
                    continue
            wrong = wrong[~program.inside[wrong]][:_MAX_ADDED]
            if len(program.chosen) + len(wrong) > _MAX_MARGINAL:
                return None
        else:  # the decided classes leave too little: decide fewer
            margin = np.where(program.inside, np.inf, classes.margin(decision))
            wrong = _smallest(margin, min(added, _MAX_MARGINAL - len(program.chosen)))
            wrong = wrong[~program.inside[wrong]]
            if not len(wrong):
                return None
            added *= 2
        program.extend(wrong)
        solved = program.solve(decision)
    return None


def _wrong_decisions(program: "_MarginalProgram", decision: Decision, now: Decision) -> IntArray:
    """Return the classes to add to the program: wrong decisions, worst first, or ties.

    The others keep their decisions, so that the program only ever gains ways to do better.
    """
    classes = program.classes
    worth = float((program.prices * classes.capacity).sum())
    regret = np.where(program.inside, 0.0, classes.regret(decision, now))
    if float(regret.sum()) > _REGRET * worth or worth <= 0:
        wrong = np.flatnonzero(regret > 0.01 * _REGRET * worth)
        return wrong[np.argsort(-regret[wrong], kind="stable")]
    stuck = (now.way.slope > DUAL_TOLERANCE) | (classes.cap <= now.t)
    return np.flatnonzero(stuck & ~program.inside & (classes.margin(now) < _TIED))


def _smallest(margin: FloatArray, wanted: int) -> IntArray:
    if len(margin) <= wanted:
        return np.arange(len(margin))
    return np.argpartition(margin, wanted)[:wanted]


class _MarginalProgram:
    """The exact program of marginal and held classes, next to decided ones linear in t."""

    def __init__(self, classes: StageClasses, cost: FloatArray, held: FlexibleClasses) -> None:
        self.classes, self.cost, self.held = classes, cost, held
        self.inside = np.zeros(len(classes.size), bool)
        self.chosen = np.zeros(0, np.int64)
        self.program = StageProgram(classes.capacity)
        self.program.add(held.gain, held.size)
        self.t = 0.0
        self.prices = np.zeros(len(classes.capacity))

    def extend(self, chosen: IntArray) -> None:
        """Take these classes in."""
        classes, held = self.classes, self.held
        self.inside[chosen] = True
        self.chosen = np.concatenate([self.chosen, chosen])
        self.program.add(classes.gain[:, chosen].T, classes.size[chosen])
        gain = np.concatenate([held.gain, classes.gain[:, self.chosen].T])
        size = np.concatenate([held.size, classes.size[self.chosen]])
        cost = np.concatenate([held.cost, self.cost[self.chosen]])
        is_open = classes.gain.max(axis=1) > 0
        self.table = ClassTable.given(gain, size, cost, is_open, 2.0 * float(classes.cap.max()))

    def solve(self, decision: Decision) -> bool:
        """Find t, prices and the marginal classes' shares, the others deciding as given.

        Return False if the others leave too little for that.
        """
        classes, held = self.classes, self.held
        used, slope = classes.response(decision, ~self.inside)
        room = classes.capacity + held.used - used + slope * decision.t
        rising = float(classes.count[(decision.rate > 0) & ~self.inside].sum())
        self.program.set_outside_use(room, slope, rising)
        count = np.concatenate([held.count, classes.count[self.chosen]])
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
        classes, state, first = self.classes, self.state, len(self.held.count)
        share = decision.shares(self.t, classes.cap, len(classes.gain))
        frozen = (now.way.slope > DUAL_TOLERANCE) | (classes.cap <= self.t)
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
