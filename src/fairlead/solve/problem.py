"""Lexicographic max-min over classes of identical members: what is asked and what is answered."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.errors import SolveError
from fairlead.solve.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.certificate import Certificate, certify, largest_level


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Stage:
    """One resource-bound level of the water-filling and whom it stopped.

    ``frozen`` reached ``min(level, cap)``, cap being a class's greatest gain. ``prices`` value
    the resources so that no class left free at this stage could rise further (see
    ``MaxMinSolution.certify_stage``); they are all 0 in a last stage that only caps stopped.
    """

    level: float
    prices: FloatArray
    frozen: IntArray


@dataclass(frozen=True, slots=True)
class MaxMinSolution:
    """The lexicographically greatest levels and the shares that reach them."""

    problem: MaxMinProblem
    share: FloatArray  # classes × resources, per member
    level: FloatArray  # classes
    stages: tuple[Stage, ...]

    @property
    def certificate(self) -> Certificate:
        """Proof, recomputed from prices alone, that the least level cannot be raised."""
        problem = self.problem
        live = live_classes(problem)
        reached = float(self.level[live].min()) if live.any() else 0.0
        prices = self.stages[0].prices if self.stages else np.zeros(len(problem.capacity))
        return certify(prices, price_bound(problem, prices), reached)

    def certify_stage(self, index: int) -> Certificate:
        """Proof that stage ``index`` could not stop higher, given the levels frozen before it."""
        stage = self.stages[index]
        granted = np.full(len(self.level), np.nan)
        for earlier in self.stages[:index]:
            granted[earlier.frozen] = self.level[earlier.frozen]
        return certify(
            stage.prices, stage_bound(self.problem, stage.prices, granted), stage.level
        )

    def filled(self, water: float) -> FloatArray:
        """Return classes → level at the moment when the filling stands at ``water``."""
        return np.minimum(self.level, water)


def live_classes(problem: MaxMinProblem) -> BoolArray:
    """Return which classes count: they have members and gain on some resource with capacity."""
    runs = (problem.gain > 0) & (problem.capacity > 0)
    live: BoolArray = runs.any(axis=1) & (problem.count > 0)
    return live


def price_bound(problem: MaxMinProblem, prices: FloatArray) -> float:
    """Return a level that no feasible shares exceed for every class, proved by any prices >= 0.

    It is the greatest t at which the classes' cheapest ways to reach t cost no more than all
    capacity is worth: max{t : Σ_k n_k C_k(t; p) <= capacity · p}. Since a member can at most
    spend all its time on its best resource, the bound is never above the least cap.
    """
    live = live_classes(problem)
    if not live.any():
        return 0.0
    gain = np.where(problem.capacity > 0, problem.gain, 0.0)[live]
    granted = np.full(len(gain), np.nan)
    budget = float((problem.capacity * prices).sum())
    ceiling = float(gain.max(axis=1).min())
    return largest_level(
        gain, problem.size[live], problem.count[live], granted, prices, budget, ceiling
    )


def stage_bound(problem: MaxMinProblem, prices: FloatArray, granted: FloatArray) -> float:
    """Return the greatest t to which ``prices`` allow the free classes to rise.

    ``granted`` is the level of each class that keeps one, NaN for the free classes, of which
    each is to reach the lesser of t and its cap. The answer is at most the greatest free cap.
    """
    live = live_classes(problem)
    if not np.isnan(granted[live]).any():
        return 0.0
    gain = np.where(problem.capacity > 0, problem.gain, 0.0)[live]
    budget = float((problem.capacity * prices).sum())
    return largest_level(
        gain, problem.size[live], problem.count[live], granted[live], prices, budget, np.inf
    )
