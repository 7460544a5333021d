"""The greatest total speed (Gavel §4.2)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import empty_allocation, refuse_blind_units
from fairlead.policies.pair_speeds import PairSpeedsCache
from fairlead.policies.sums import choices
from fairlead.policies.units import UnitRules
from fairlead.solve import best_sum


@dataclass(frozen=True)
class Throughput:
    """Maximise the sum of all jobs' steps per second, however unevenly they come about.

    Steps of different workloads are added as they are, as in the paper. Of several optima it
    takes the one with the least device time; what is still tied is decided by a fixed generic
    number for each option. ``agnostic`` takes a job's mean speed for its speed everywhere,
    ``packed`` lets two jobs share devices, ``placement`` tells gangs on one node from spread ones.
    """

    reads_progress: ClassVar[bool] = False
    agnostic: bool = False
    packed: bool = False
    placement: bool = False
    _pairs: PairSpeedsCache = field(
        init=False, repr=False, compare=False, default_factory=PairSpeedsCache
    )

    def __post_init__(self) -> None:
        refuse_blind_units(self)

    @property
    def realised_by(self) -> str:
        """The mechanism for the rows and columns of these shares."""
        return "units" if self.packed or self.placement else "shares"

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the greatest total of steps per second."""
        if not len(snap.job):
            return empty_allocation(snap)
        rules = UnitRules(self.packed, self.placement)
        nothing = np.zeros((len(snap.job), 0))
        found = choices(snap, nothing, rules, self._pairs, agnostic=self.agnostic)
        best = best_sum(found.problem, found.speed)
        return found.allocation(snap, best, rules)
