"""Minimal makespan (Gavel §4.2)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._levels.max_min import JobClassTable, max_min_allocation
from fairlead.policies._packing.levels import least_level_units, max_min_units
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import WarmStart, empty_allocation, mean_speed
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution
from fairlead.solve.options.filling import WarmFilling
from fairlead.solve.options.level_sum import WarmLevelSum
from fairlead.solve.paths.warm_climb import WarmClimb

_NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class Makespan(UnitPolicy):
    """Minimise the longest remaining time, then the next longest, and so on.

    A job's level is the fraction of its remaining steps made per unit of time, so this is
    max-min over speed / steps left. Objective and bound are the makespan in seconds.
    ``agnostic`` uses a job's mean speed on every accelerator. ``packed`` lets two jobs share
    devices where that pays, and within the makespan serves short jobs first instead of the next
    longest; ``placement`` distinguishes gangs on one node from spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        per_accelerator_gangs=True, ends_early=True, trades_accelerators=True
    )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares that finish the snapshot's jobs earliest."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same; the last makespan is where the search for the next one begins."""
        if not len(snap.job):
            return empty_allocation(snap)
        speed = snap.speed
        if self.agnostic:
            speed = np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)
        fastest = speed.max(axis=1)
        runs = fastest > 0
        alone_s = snap.steps_left / np.where(runs, fastest, 1.0)
        longest_s = float(alone_s[runs].max(initial=0.0)) or 1.0
        # A job that is almost done needs almost no time; a lower bound relative to the longest
        # job keeps the numbers within the solver's precision.
        left_s = np.maximum(alone_s, _NEGLIGIBLE * longest_s)
        if self.packed:
            return self._packed_units(snap, fastest, left_s, longest_s, warm)
        # With levels of order 1 the solver's tolerances suit short and long jobs alike.
        unit_s = float(np.median(alone_s[runs])) if runs.any() else 1.0
        share_of = unit_s / left_s
        if self._needs_unit_program(snap):
            scale = share_of / np.maximum(speed.max(axis=1), 1e-300)
            ends = warm.state((self, WarmFilling), lambda: WarmFilling(perturbed=False))
            units = max_min_units(snap, scale, self._rules, ends, speed, unit_s, by_job=True)
            return _levels_to_seconds(units, unit_s)
        rate = speed / np.maximum(speed.max(axis=1), 1e-300)[:, None] * share_of[:, None]
        table = JobClassTable.of(rate, snap.gang, snap.capacity)
        climb = warm.state(self, WarmClimb)

        def solve(problem: MaxMinProblem, keys: IntArray) -> MaxMinSolution:
            del keys
            return climb.max_min(problem, unit_s)

        allocation = max_min_allocation(snap, table, table.class_of, solve, pooled=self.agnostic)
        return _levels_to_seconds(allocation, unit_s)

    def _packed_units(
        self,
        snap: Snapshot,
        fastest: FloatArray,
        left_s: FloatArray,
        longest_s: float,
        warm: WarmStart,
    ) -> Allocation:
        """Return the shares of units with the least makespan, then the greatest sum of progress.

        Progress of short jobs counts more, so that they end early: a job's relative speed is worth
        1 / √(time left).
        """
        fastest = np.maximum(fastest, 1e-300)
        # In these units the longest job's level is of order 1, and so is the least one.
        scale, value = longest_s / left_s / fastest, 1.0 / (fastest * np.sqrt(left_s))
        last = warm.state((self, WarmLevelSum), WarmLevelSum)
        units = least_level_units(snap, scale, value, self._rules, last, longest_s)
        return _levels_to_seconds(units, longest_s)


def _levels_to_seconds(allocation: Allocation, unit_s: float) -> Allocation:
    """Return the allocation with levels (fractions done in ``unit_s``) converted to seconds."""

    def prove() -> Certificate:
        assert allocation.prove is not None
        level = allocation.prove()
        bound_s = unit_s / level.bound if level.bound else np.inf
        return Certificate(level.prices, bound_s, level.gap)

    def worth() -> float:
        least = allocation.objective
        return unit_s / least if least else np.inf

    return replace(allocation, worth=worth, prove=prove)
