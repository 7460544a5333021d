"""Problem and solution of lexicographic max-min over classes of identical members."""

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.model.value import value
from fairlead.solve.certificate import Demand, certify


@value
class MaxMinProblem:
    """Classes of identical members that share the time of divisible resources.

    A member of class k that spends shares x of its time on the resources reaches the level
    ``gain[k] · x`` and holds ``size[k]`` devices of the resource it is on. A class that gains
    on no resource with capacity has level 0 and is left out of the objective, so that it does
    not hold the others at 0; a class with count 0 is ignored likewise.
    """

    gain: FloatArray  # classes × resources, >= 0; 0 means that it cannot run there
    size: FloatArray  # classes: devices one member holds while it runs, > 0
    count: FloatArray  # classes: members, >= 0
    capacity: FloatArray  # resources: devices, >= 0

    def check(self) -> None:
        """Raise SolveError unless shapes agree and all values are finite and in range."""
        gain, size, count, capacity = self.gain, self.size, self.count, self.capacity
        rows = len(size)
        if gain.shape != (rows, len(capacity)) or count.shape != (rows,) or not len(capacity):
            self._refuse(f"shapes {gain.shape}, {size.shape}, {count.shape}, {capacity.shape}")
        for name, values in (("gain", gain), ("count", count), ("capacity", capacity)):
            if not (np.isfinite(values).all() and (values >= 0).all()):
                self._refuse(f"{name} must be finite and at least 0")
        if not (np.isfinite(size).all() and (size > 0).all()):
            self._refuse("size must be finite and above 0")

    def _refuse(self, why: str) -> None:
        raise SolveError(f"malformed problem: {why}", status="malformed", n_classes=len(self.size))


@value
class Stage:
    """One resource-bound level of the water-filling and the classes it stopped.

    ``frozen`` are the classes that stopped at this level, at a cap on the way to it, or, in the
    last stage, at the greatest gain that the exhausted resources leave them. ``prices`` prove
    the level (see ``MaxMinSolution.certify_stage``); they are 0 where only caps stopped it.
    """

    level: float
    prices: FloatArray
    frozen: IntArray


@value
class MaxMinSolution:
    """The lexicographically greatest levels and the shares that reach them."""

    problem: MaxMinProblem
    share: FloatArray  # classes × resources, per member
    stages: tuple[Stage, ...]

    @property
    def level(self) -> FloatArray:
        """classes → the level that the shares reach."""
        level: FloatArray = (self.problem.gain * self.share).sum(axis=1)
        return level

    @property
    def certificate(self) -> Certificate:
        """Proof, recomputed from prices alone, that the least level cannot be raised."""
        problem = self.problem
        live = usable_classes(problem)
        reached = float(self.level[live].min()) if live.any() else 0.0
        prices = self.stages[0].prices if self.stages else np.zeros(len(problem.capacity))
        return certify(prices, price_bound(problem, prices), reached)

    def certify_stage(self, index: int) -> Certificate:
        """Proof that the classes at stage ``index``'s level cannot all stand higher.

        It takes the levels of the classes below that one as given.
        """
        stage = self.stages[index]
        lower = self.level < stage.level * (1 - 1e-9)
        granted = np.where(lower, self.level, np.nan)
        return certify(stage.prices, price_bound(self.problem, stage.prices, granted), stage.level)

    def filled(self, water: float) -> FloatArray:
        """Return classes → level at the moment when the filling stands at ``water``."""
        return np.minimum(self.level, water)


def usable_classes(problem: MaxMinProblem) -> BoolArray:
    """Return which classes count: they have members and gain on some resource with capacity."""
    runs = (problem.gain > 0) & (problem.capacity > 0)
    live: BoolArray = runs.any(axis=1) & (problem.count > 0)
    return live


def price_bound(
    problem: MaxMinProblem, prices: FloatArray, granted: FloatArray | None = None
) -> float:
    """Return a level that no feasible shares exceed for every class, proved by any prices >= 0.

    It is the greatest t at which the classes' cheapest ways to reach t cost no more than all
    capacity is worth: max{t : Σ_k n_k C_k(t; p) <= capacity · p}. Since a member can at most
    spend all its time on its best resource, the bound is never above the least cap. Where
    ``granted`` has a number, that class keeps this level instead of rising with t.
    """
    live = usable_classes(problem)
    level = np.full(int(live.sum()), np.nan) if granted is None else granted[live]
    if not np.isnan(level).any():
        return 0.0
    gain = np.where(problem.capacity > 0, problem.gain, 0.0)[live]
    budget = float((problem.capacity * prices).sum())
    demand = Demand(gain, problem.size[live], problem.count[live], level)
    return demand.largest_level(prices, budget)


def feasible(problem: MaxMinProblem, share: FloatArray) -> FloatArray:
    """Return the shares cleared of rounding: nothing below 0 or over time or capacity."""
    share = np.maximum(share.round(12), 0.0)
    share /= np.maximum(share.sum(axis=1), 1.0)[:, None]
    used = ((problem.count * problem.size)[:, None] * share).sum(axis=0)
    share *= np.minimum(1.0, problem.capacity / np.maximum(used, 1e-300))
    return share
