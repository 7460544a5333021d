"""The most steps for the money (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import choices, prices
from fairlead.policies.base import empty_allocation
from fairlead.solve import best_ratio, best_sum


@dataclass(frozen=True)
class Cost(UnitPolicy):
    """Maximise total steps per second over the total price per hour of the devices held.

    That ratio is greatest when only those run that make the most steps for their price; of all
    allocations with that ratio the one with the greatest total speed is taken, then the least
    device time. A packed unit pays for its devices once. The devices left are idle on purpose.

    ``sum`` maximises instead the sum of speed / price of one device, weighted by time, as the
    paper's published code does: a gang's price is then not multiplied by its devices, and
    whatever can run does. ``agnostic`` takes a job's mean speed for its speed everywhere,
    ``packed`` lets two jobs share devices, ``placement`` tells gangs on one node from spread ones.
    """

    reads_progress: ClassVar[bool] = False
    fills_idle: ClassVar[bool] = False
    """idle devices are not to be lent out: they cost"""
    sum: bool = False

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares that make the most steps for their price."""
        usd_per_hour = prices(snap)
        if not len(snap.job):
            return empty_allocation(snap)
        rules = self._rules
        nothing = np.zeros((len(snap.job), 0))
        found = choices(snap, nothing, rules, agnostic=self.agnostic)
        if self.sum:
            best = best_sum(found.problem, found.speed / usd_per_hour[found.table.resource])
        else:
            best = best_ratio(found.problem, found.speed, found.cost(usd_per_hour))
        return found.allocation(snap, best, rules)
