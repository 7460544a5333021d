"""Maximal total throughput (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.totals import job_options
from fairlead.policies.base import empty_allocation
from fairlead.solve.options.objectives import best_sum


@dataclass(frozen=True)
class Throughput(UnitPolicy):
    """Maximise the sum of all jobs' steps per second, without regard to fairness.

    Steps of different workloads are added without scaling, as in the paper. Of several optima the
    policy takes the one with the least device time; a fixed generic number of each option breaks
    further ties. ``agnostic`` uses a job's mean speed on every accelerator, ``packed`` lets two
    jobs share devices, ``placement`` distinguishes gangs on one node from spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(reads_progress=False, per_accelerator_gangs=True)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the greatest total of steps per second."""
        if not len(snap.job):
            return empty_allocation(snap)
        rules = self._rules
        no_distinction = np.zeros((len(snap.job), 0))
        options = job_options(snap, no_distinction, rules, agnostic=self.agnostic)
        best = best_sum(options.problem, options.speed)
        return options.allocation(snap, best, rules)
