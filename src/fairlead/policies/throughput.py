"""The greatest total speed (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import choices
from fairlead.policies.base import empty_allocation
from fairlead.solve import best_sum


@dataclass(frozen=True)
class Throughput(UnitPolicy):
    """Maximise the sum of all jobs' steps per second, however unevenly they come about.

    Steps of different workloads are added as they are, as in the paper. Of several optima it
    takes the one with the least device time; what is still tied is decided by a fixed generic
    number for each option. ``agnostic`` takes a job's mean speed for its speed everywhere,
    ``packed`` lets two jobs share devices, ``placement`` tells gangs on one node from spread ones.
    """

    reads_progress: ClassVar[bool] = False

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the greatest total of steps per second."""
        if not len(snap.job):
            return empty_allocation(snap)
        rules = self._rules
        nothing = np.zeros((len(snap.job), 0))
        found = choices(snap, nothing, rules, agnostic=self.agnostic)
        best = best_sum(found.problem, found.speed)
        return found.allocation(snap, best, rules)
