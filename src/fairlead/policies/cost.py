"""Minimal cost: the most steps per dollar (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import job_options, prices
from fairlead.policies.base import empty_allocation
from fairlead.solve.options.objectives import best_ratio, best_sum


@dataclass(frozen=True)
class Cost(UnitPolicy):
    """Maximise total steps per second over the total price per hour of the devices held.

    The ratio is greatest when only the units with the most steps per dollar run. Of all
    allocations with that ratio the policy takes the one with the greatest total speed, then with
    the least device time. A packed unit pays for its devices once. The other devices stay idle.

    ``sum`` maximises instead the sum of speed / price of one device, weighted by time, as the
    paper's published code does: a gang's price is then not multiplied by its devices, and
    every job that can run does. ``agnostic`` uses a job's mean speed on every accelerator,
    ``packed`` lets two jobs share devices, ``placement`` distinguishes gangs on one node from
    spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        reads_progress=False,
        per_accelerator_gangs=True,
        fills_idle=False,  # idle devices cost nothing, busy ones do
    )
    sum: bool = False
    """maximise the sum of speed / price of one device, as the paper's published code does"""

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the most steps per dollar."""
        usd_per_hour = prices(snap)
        if not len(snap.job):
            return empty_allocation(snap)
        rules = self._rules
        no_distinction = np.zeros((len(snap.job), 0))
        options = job_options(snap, no_distinction, rules, agnostic=self.agnostic)
        if self.sum:
            best = best_sum(options.problem, options.speed / usd_per_hour[options.table.resource])
        else:
            best = best_ratio(options.problem, options.speed, options.cost(usd_per_hour))
        return options.allocation(snap, best, rules)
