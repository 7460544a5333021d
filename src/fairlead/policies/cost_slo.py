"""Minimal cost subject to deadlines (SLOs) (Gavel §4.2)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation, MissedDeadline
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.job import DEADLINE_TOLERANCE
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.kept_table import KeptTable
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import job_options, prices
from fairlead.policies.base import WarmStart, effective_speed, empty_allocation
from fairlead.solve.options.objectives import best_ratio_above


@dataclass(frozen=True)
class CostSlo(UnitPolicy):
    """Maximise speed over price, as ``cost`` does, with every job in time for its deadline.

    A job with a deadline gets at least its steps left over the time left. If not all deadlines
    can be met, the policy first minimises the sum of the relative shortfalls, and the allocation
    names the jobs that will be late. A job whose deadline has passed needs all the speed it can
    have. The speeds leave no margin for rounds, so a job may end about a round after its deadline;
    shorter rounds bring it closer. ``agnostic`` uses a job's mean speed on every accelerator;
    ``packed`` and ``placement`` are those of ``cost``.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        reads_progress_without_deadline=False,
        per_accelerator_gangs=True,
        fills_idle=False,  # idle devices cost no_distinction, busy ones do
    )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the cheapest shares that meet all deadlines, or those closest to it."""
        return self._allocate(snap, needed_speed(snap))

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same; without deadlines the same jobs are not solved again."""
        needed = needed_speed(snap)
        if needed.any() or self.packed or self.placement:
            return self._allocate(snap, needed)
        last = warm.state(self, _LastAllocation)
        key = (
            *(snap.job.tobytes(), snap.profile.tobytes(), snap.devices.tobytes()),
            *(snap.capacity.tobytes(), snap.profiles.content, snap.profiles.tenant.tobytes()),
            *(snap.tenants, snap.cluster),
        )
        if last.allocation is None or key != last.key:
            last.key, last.allocation = key, self._allocate(snap, needed, last.table)
        return last.allocation

    def _allocate(
        self, snap: Snapshot, needed: FloatArray, kept: KeptTable | None = None
    ) -> Allocation:
        usd_per_hour = prices(snap)
        if not len(snap.job):
            return empty_allocation(snap)
        rules = self._rules
        # Passed deadlines are alike: such jobs run as fast as they can.
        options = job_options(snap, needed, rules, agnostic=self.agnostic, kept=kept)
        of_class = needed[options.table.classes.representative]
        floor = np.where(np.isinf(of_class), options.problem.cap, of_class)
        best = best_ratio_above(options.problem, options.speed, options.cost(usd_per_hour), floor)
        allocation = options.allocation(snap, best, rules)
        if not needed.any():
            return allocation
        return replace(allocation, late=_late(snap, needed, effective_speed(snap, allocation)))


@dataclass
class _LastAllocation:
    """The last shares of jobs without deadlines, and the inputs that they depend on."""

    key: tuple[object, ...] = ()
    allocation: Allocation | None = None
    table: KeptTable = field(default_factory=KeptTable)


def needed_speed(snap: Snapshot) -> FloatArray:
    """Return jobs → steps per second needed for its deadline; infinite if that has passed.

    0 for jobs without a deadline.
    """
    if (snap.deadline_at == np.inf).all():
        return np.zeros(len(snap.job))
    left_s = snap.deadline_at - snap.at
    with np.errstate(divide="ignore"):
        return np.where(left_s > 0, snap.steps_left / np.maximum(left_s, 0.0), np.inf)


def _late(snap: Snapshot, needed: FloatArray, speed: FloatArray) -> tuple[MissedDeadline, ...]:
    rows = (speed < needed * (1 - DEADLINE_TOLERANCE)).nonzero()[0]
    return tuple(
        MissedDeadline(snap.ids[snap.job[row]], float(needed[row]), float(speed[row]))
        for row in rows.tolist()
    )
