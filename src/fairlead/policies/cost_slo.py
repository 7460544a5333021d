"""The most steps for the money while deadlines are met (Gavel §4.2)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation, MissedDeadline
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import choices, prices
from fairlead.policies.base import effective_speed, empty_allocation
from fairlead.solve import best_ratio_above

# Deadlines missed by less than this, relatively, are met: it is what rounding can do.
_DEADLINE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class CostSlo(UnitPolicy):
    """Maximise speed over price, as ``cost`` does, with every job in time for its deadline.

    A job with a deadline gets at least its steps left over the time left. Where not all can,
    the sum of what they lack relative to what they need is least, before the ratio is greatest,
    and the allocation names those that will be late. A job whose deadline has passed needs all
    the speed it can have. ``agnostic`` plans with a job's mean speed everywhere; ``packed`` and
    ``placement`` are those of ``cost``.
    """

    reads_progress_without_deadline: ClassVar[bool] = False
    fills_idle: ClassVar[bool] = False
    """idle devices are not to be lent out: they cost"""

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the cheapest shares in time, or the least late, and who will be late."""
        usd_per_hour = prices(snap)
        if not len(snap.job):
            return empty_allocation(snap)
        needed = needed_speed(snap)
        rules = self._rules
        # Deadlines that no job can be in time for are alike: as fast as it can.
        found = choices(snap, needed, rules, agnostic=self.agnostic)
        asked = needed[found.table.classes.representative]
        floor = np.where(np.isinf(asked), found.problem.cap, asked)
        best = best_ratio_above(found.problem, found.speed, found.cost(usd_per_hour), floor)
        allocation = found.allocation(snap, best, rules)
        given = effective_speed(snap, allocation)
        return replace(allocation, late=_late(snap, needed, given))


def needed_speed(snap: Snapshot) -> FloatArray:
    """Return jobs → steps per second that bring it to its deadline; infinite if that has passed.

    0 for jobs without a deadline.
    """
    left_s = snap.deadline_at - snap.at
    with np.errstate(divide="ignore"):
        return np.where(left_s > 0, snap.steps_left / np.maximum(left_s, 0.0), np.inf)


def _late(snap: Snapshot, needed: FloatArray, given: FloatArray) -> tuple[MissedDeadline, ...]:
    rows = (given < needed * (1 - _DEADLINE_TOLERANCE)).nonzero()[0]
    return tuple(
        MissedDeadline(snap.ids[snap.job[row]], float(needed[row]), float(given[row]))
        for row in rows.tolist()
    )
