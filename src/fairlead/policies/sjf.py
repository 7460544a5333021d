"""Shortest job first, each job on the fastest accelerator left (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import job_allocation, mean_speed, reject_unit_options
from fairlead.policies.rules.quotas import QuotaCapacity


@dataclass(frozen=True)
class ShortestFirst:
    """Serve next the job that would finish first on the devices still free.

    The paper does not define the shares of the other jobs while the shortest job runs. Here each
    job gets all of the time on the accelerator on which it finishes first among those with enough
    free devices; the order is computed again as devices fill. Ties go to the earlier arrival,
    then to the cluster's order of accelerators. ``agnostic`` uses mean speeds, and accelerators
    in the cluster's order.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    agnostic: bool = False
    """use mean speeds, and accelerators in the cluster's order"""
    packed: bool = False
    """refused: a partner would slow the shortest job"""
    placement: bool = False
    """refused: jobs hold whole devices, which the mechanism consolidates"""

    def __post_init__(self) -> None:
        why = "a partner would slow the shortest job"
        reject_unit_options("sjf", packed=why if self.packed else None, placement=self.placement)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return all of the time on one accelerator for the jobs that fit, shortest first."""
        speed = snap.speed
        if self.agnostic:
            speed = np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)
        rank = np.empty(len(snap.job), dtype=np.int64)
        rank[np.lexsort((snap.job, snap.arrival_at))] = np.arange(len(rank))
        row, accelerator = (speed > 0).nonzero()
        left_s = snap.steps_left[row] / speed[row, accelerator]
        # Free devices only decrease, so one pass over all candidates in order suffices.
        order = np.lexsort((accelerator, rank[row], left_s))
        room, gang = QuotaCapacity(snap), np.broadcast_to(snap.gang_on, speed.shape).tolist()
        share = np.zeros((len(snap.job), len(room.free)))
        placed = [False] * len(gang)
        for m, j in zip(row[order].tolist(), accelerator[order].tolist(), strict=True):
            if not placed[m] and room.fits(m, j, gang[m][j]):
                placed[m] = True
                room.take(m, j, gang[m][j])
                share[m, j] = 1.0
        return job_allocation(snap, share)
