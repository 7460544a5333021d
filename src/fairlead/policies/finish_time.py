"""Finish-time fairness: the objective of Themis, aware of accelerators (Gavel §4.2)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._levels.paths import path_allocation
from fairlead.policies._packing.levels import path_units
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import WarmStart, empty_allocation, mean_speed
from fairlead.policies.isolated import entitled_split, isolated_elapsed_s
from fairlead.solve.classes import Classes
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.options.filling import WarmFilling
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.paths.warm_climb import WarmClimb


@dataclass(frozen=True)
class FinishTime(UnitPolicy):
    """Minimise the greatest finish-time ratio ρ, then the next greatest, and so on.

    ρ compares a job's finish time with that on an equal split of the cluster:

        ρ = (elapsed + steps left / speed) / (isolated elapsed + steps left / isolated speed)

    Isolated elapsed is the time that the steps made so far would have taken on an equal split
    among the jobs of the time; the isolated speed is that of the policy ``isolated`` now.
    Objective and bound are the greatest ρ. ``agnostic`` uses a job's mean speed on every
    accelerator, ``packed`` lets two jobs share devices where that pays, ``placement``
    distinguishes gangs on one node from spread gangs; isolated speeds are always those of jobs
    alone and consolidated.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        per_accelerator_gangs=True, trades_accelerators=True
    )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares that minimise the greatest ρ, then the next greatest, and so on."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same; the search begins at the prices of the planner's last solution."""
        if not len(snap.job):
            return empty_allocation(snap)
        speed = snap.speed
        if self.agnostic:
            speed = np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)
        speed = np.where(snap.gang_on <= snap.capacity, speed, 0.0)
        fastest = speed.max(axis=1)
        runs = fastest > 0
        safe = np.where(runs, fastest, 1.0)
        # Levels are relative to a job's greatest speed, so that they are all of order 1.
        gain = speed / safe[:, None]
        alone_s = snap.steps_left / safe
        split = entitled_split(snap, snap.capacity.astype(np.float64))
        isolated = (speed * split).sum(axis=1) / safe
        isolated_s = isolated_elapsed_s(snap) + alone_s / np.where(runs, isolated, 1.0)
        path = RatioPath(alone_s, snap.elapsed_s, isolated_s, runs.astype(float))
        if self._needs_unit_program(snap):
            return self._units(snap, path, 1.0 / safe, speed, warm)
        problem = MaxMinProblem(gain, snap.gang.astype(float), runs.astype(float), snap.devices)
        rows: IntArray = np.arange(len(runs))
        allocation = path_allocation(
            snap, problem, path, rows, warm.state(self, WarmClimb), pooled=self.agnostic
        )

        def worth() -> float:
            level = (gain * allocation.share).sum(axis=1)
            return float(path.ratio(level)[runs].max(initial=0.0))

        def prove() -> Certificate:
            assert allocation.prove is not None
            proof = allocation.prove()
            # A job alone on its fastest accelerator bounds the ratio at any prices.
            least = float(path.ratio(np.ones(len(runs)))[runs].max(initial=0.0))
            return _certificate(proof, least, worth())

        return replace(allocation, worth=worth, prove=prove)

    def _units(
        self,
        snap: Snapshot,
        path: "RatioPath",
        scale: FloatArray,
        speed: FloatArray,
        warm: WarmStart,
    ) -> Allocation:
        """Return the same with shares of units; a job's level is scale × speed."""
        cap = np.zeros(len(scale))

        def path_of(classes: Classes, problem: OptionProblem) -> RatioPath:
            cap[:] = problem.cap[classes.index_of_member]
            return path.of(classes.representative).within(problem.cap)

        last = warm.state(
            (self, WarmFilling), lambda: WarmFilling(perturbed=False, by_prices=True)
        )
        believed = speed if self.agnostic else None
        allocation = path_units(snap, scale, path.distinct, path_of, self._rules, last, believed)

        def worth() -> float:
            reached = allocation.speed
            if reached is None:
                reached = (speed * allocation.share).sum(axis=1)
            return float(path.ratio(reached * scale)[cap > 0].max(initial=0.0))

        def prove() -> Certificate:
            assert allocation.prove is not None
            proof = allocation.prove()
            # A job that always runs its fastest option bounds the ratio at any prices.
            least = float(path.ratio(cap)[cap > 0].max(initial=0.0))
            return _certificate(proof, least, worth())

        return replace(allocation, worth=worth, prove=prove)


def _certificate(proof: Certificate, least: float, reached: float) -> Certificate:
    """Return the bound on the greatest ratio from prices and ``least``; 0 if no job can run."""
    bound = max(1.0 / proof.bound, least) if proof.bound > 0 else least
    return Certificate(proof.prices, bound, (reached - bound) / bound if bound else 0.0)


class RatioPath:
    """The levels at which jobs have the common ratio ρ = 1 / theta, or have reached their caps.

    A job at level L, of its greatest speed, has ρ = (elapsed + alone / L) / isolated.
    """

    def __init__(
        self, alone_s: FloatArray, elapsed_s: FloatArray, isolated_s: FloatArray, cap: FloatArray
    ) -> None:
        self._alone_s, self._elapsed_s, self._isolated_s = alone_s, elapsed_s, isolated_s
        self._cap = cap
        # jobs → theta at which the cap is reached
        self._full_at = cap * isolated_s / (alone_s + cap * elapsed_s)

    @property
    def top(self) -> float:
        """The theta from which on all jobs have reached their caps."""
        return float(self._full_at.max(initial=0.0))

    def level(self, theta: float) -> FloatArray:
        """Return jobs → level at ``theta``."""
        left_s = self._left_s(theta)
        level: FloatArray = np.minimum(self._cap, self._alone_s * theta / left_s)
        return level

    def rate(self, theta: float) -> FloatArray:
        """Return jobs → growth of the level just above ``theta``."""
        rate = self._alone_s * self._isolated_s / self._left_s(theta) ** 2
        return np.where(self._full_at <= theta, 0.0, rate)

    def within(self, cap: FloatArray) -> "RatioPath":
        """Return the path with these caps; a job's cap does not affect other jobs."""
        return RatioPath(self._alone_s, self._elapsed_s, self._isolated_s, cap)

    @property
    def distinct(self) -> FloatArray:
        """jobs × 3 → properties by which jobs differ on this path."""
        return np.column_stack([self._alone_s, self._elapsed_s, self._isolated_s])

    def of(self, rows: IntArray) -> "RatioPath":
        """Return the path of some of the jobs."""
        return RatioPath(
            self._alone_s[rows], self._elapsed_s[rows], self._isolated_s[rows], self._cap[rows]
        )

    def ratio(self, level: FloatArray) -> FloatArray:
        """Return jobs → ρ at these levels, infinite at 0."""
        time_s = np.divide(self._alone_s, level, out=np.full(len(level), np.inf), where=level > 0)
        ratio: FloatArray = (self._elapsed_s + time_s) / self._isolated_s
        return ratio

    def _left_s(self, theta: float) -> FloatArray:
        """Return jobs → time left under the ratio, times theta; at least that at the cap."""
        at = np.minimum(theta, self._full_at)
        return self._isolated_s - self._elapsed_s * at
