"""Weighted max-min fairness over effective throughput (Gavel §4.1, §4.3)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._levels.max_min import JobClassTable, max_min_allocation
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies.base import WarmStart, empty_allocation, mean_speed
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution
from fairlead.solve.solver import MaxMinSolver


class _WarmProgram:
    """The solver and class table of the last allocation, with the profiles they belong to."""

    def __init__(self) -> None:
        self._solver = MaxMinSolver()
        self._table: JobClassTable | None = None
        self._content: tuple[bytes, ...] = ()

    def solve(self, problem: MaxMinProblem, keys: IntArray) -> MaxMinSolution:
        return self._solver.solve(problem, keys.tolist())

    def table(self, snap: Snapshot, build: Callable[[Snapshot], JobClassTable]) -> JobClassTable:
        """Return the class table of the snapshot's profiles and devices, built if they changed."""
        content = (snap.capacity.tobytes(), *snap.profiles.content)
        if self._table is None or content != self._content:
            self._table, self._content = build(snap), content
        return self._table


@dataclass(frozen=True)
class MaxMin(UnitPolicy):
    """Maximise the least normalised speed, then the next least, and so on.

    A job's speed is normalised by its speed with an equal share of every device, divided by
    its weight and multiplied by its gang, as in the paper; a job whose gang differs by
    accelerator is compared by the speed per device. The paper maximises only the least level;
    the full lexicographic order determines which of its optima is taken. ``agnostic`` ignores
    the differences between accelerators: only a job's time counts, spread over all of them
    evenly. ``packed`` lets two jobs share devices where that pays; ``placement`` distinguishes
    gangs on one node from gangs spread over several. Both are normalised by the speeds of jobs
    alone and consolidated.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True, trades_accelerators=True
    )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the lexicographic max-min shares of the snapshot's jobs."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, starting from the planner's last solution."""
        if not len(snap.job):
            return empty_allocation(snap)
        if self._needs_unit_program(snap):
            from fairlead.policies._packing.kept_table import KeptTable  # noqa: PLC0415  # for few
            from fairlead.policies._packing.levels import max_min_units  # noqa: PLC0415  # as above
            from fairlead.solve.options.filling import WarmFilling  # noqa: PLC0415  # as above

            scale, rules = self._scale(snap), self._rules
            speed = (snap.speed > 0).astype(float) if self.agnostic else None
            last = warm.state((self, WarmFilling), WarmFilling)
            kept = warm.state((self, KeptTable), KeptTable)
            units = None if self.agnostic else kept.table(snap, scale, rules)
            return max_min_units(snap, scale[snap.profile], rules, last, speed, table=units)
        state = warm.state(self, _WarmProgram)
        table = state.table(snap, self._classes)
        return max_min_allocation(
            snap, table, table.class_of[snap.profile], state.solve, pooled=self.agnostic
        )

    def _classes(self, snap: Snapshot) -> JobClassTable:
        profiles = snap.profiles
        speed = (profiles.speed > 0).astype(float) if self.agnostic else profiles.speed
        return JobClassTable.of(speed * self._scale(snap)[:, None], profiles.gang, snap.capacity)

    def _scale(self, snap: Snapshot) -> FloatArray:
        """Return profiles → level reached per unit of speed."""
        profiles = snap.profiles
        if self.agnostic:
            normal = np.ones(len(profiles.gang))
        else:
            normal = mean_speed(profiles.gang_speed, snap.capacity)
        return profiles.gang / (profiles.weight * np.where(normal > 0, normal, 1.0))
