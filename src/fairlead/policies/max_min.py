"""Weighted max-min fairness over effective throughput (Gavel §4.1, §4.3)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import empty_allocation, mean_speed
from fairlead.policies.levels import ClassTable, max_min_allocation
from fairlead.policies.unit_levels import flat_units
from fairlead.policies.unit_policy import UnitPolicy
from fairlead.solve import MaxMinProblem, MaxMinSolution, MaxMinSolver


class _Cache:
    """What speeds up the next allocation and never changes its result."""

    def __init__(self) -> None:
        self._solver = MaxMinSolver()
        self.table: ClassTable | None = None
        self._profiles: Profiles | None = None
        self._capacity = b""

    def solve(self, problem: MaxMinProblem, keys: IntArray) -> MaxMinSolution:
        return self._solver.solve(problem, keys.tolist())

    def made_for(self, snap: Snapshot) -> bool:
        """Tell whether the class table still describes the snapshot's profiles and devices."""
        return self._profiles is snap.profiles and self._capacity == snap.capacity.tobytes()

    def keep(self, snap: Snapshot, table: ClassTable) -> None:
        self.table = table
        self._profiles = snap.profiles
        self._capacity = snap.capacity.tobytes()


@dataclass(frozen=True)
class MaxMin(UnitPolicy):
    """Maximise the least normalised speed, then the next least, and so on.

    A job's speed is normalised by what an equal share of every device would give it, divided by
    its weight and multiplied by its gang, as in the paper; a job that needs other numbers of
    devices on other accelerators is compared by what one device of each makes. The paper maximises
    only the least level; the full lexicographic order settles which of its optima is taken.
    ``agnostic`` ignores what accelerators are: every job counts its time only, spread over all of
    them alike.
    ``packed`` lets two jobs share devices where that pays; ``placement`` tells gangs on one node
    from gangs spread over several. Both are normalised as jobs alone and consolidated are.
    """

    reads_progress: ClassVar[bool] = False
    _cache: _Cache = field(init=False, repr=False, compare=False, default_factory=_Cache)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the lexicographic max-min shares of the snapshot's jobs."""
        if not len(snap.job):
            return empty_allocation(snap)
        cache = self._cache
        if self._by_units(snap):
            scale = self._scale(snap)[snap.profile]
            rules = self._rules
            speed = (snap.speed > 0).astype(float) if self.agnostic else None
            return flat_units(snap, scale, rules, self._pairs, speed)
        table = cache.table
        if table is None or not cache.made_for(snap):
            table = self._classes(snap)
            cache.keep(snap, table)
        return max_min_allocation(
            snap, table, table.class_of[snap.profile], cache.solve, pooled=self.agnostic
        )

    def _classes(self, snap: Snapshot) -> ClassTable:
        profiles = snap.profiles
        speed = (profiles.speed > 0).astype(float) if self.agnostic else profiles.speed
        return ClassTable.of(speed * self._scale(snap)[:, None], profiles.gang, snap.capacity)

    def _scale(self, snap: Snapshot) -> FloatArray:
        """Return profiles → level reached per unit of speed."""
        profiles = snap.profiles
        if self.agnostic:
            normal = np.ones(len(profiles.gang))
        else:
            normal = mean_speed(profiles.gang_speed, snap.capacity)
        return profiles.gang / (profiles.weight * np.where(normal > 0, normal, 1.0))
