"""Shortest job first, each job on the fastest accelerator left (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import job_allocation, mean_speed, reject_unit_options
from fairlead.policies.rules.quotas import QuotaCapacity


@dataclass(frozen=True)
class ShortestFirst:
    """Serve next the job that would finish first on the devices still free.

    The paper leaves open what the others get while the shortest job runs: here each is served
    wholly, on the accelerator on which it finishes first among those with room for its gang;
    the order is judged anew as devices fill. Ties go to the earlier arrival, then to the
    cluster's order of accelerators. ``agnostic`` judges by mean speeds and takes accelerators in
    the cluster's order.
    """

    takes_alternatives: ClassVar[bool] = True
    agnostic: bool = False
    packed: bool = False
    placement: bool = False

    def __post_init__(self) -> None:
        why = "a partner would slow the job that is to finish first"
        reject_unit_options("sjf", packed=why if self.packed else None, placement=self.placement)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return all of the time on one accelerator for the jobs that fit, shortest first."""
        speed = snap.speed
        if self.agnostic:
            speed = np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)
        rank = np.empty(len(snap.job), dtype=np.int64)
        rank[np.lexsort((snap.job, snap.arrival_at))] = np.arange(len(rank))
        row, kind = (speed > 0).nonzero()
        left_s = snap.steps_left[row] / speed[row, kind]
        # Devices only become fewer, so one pass over all choices in order finds each time the
        # first that still fits.
        order = np.lexsort((kind, rank[row], left_s))
        room, gang = QuotaCapacity(snap), np.broadcast_to(snap.gang_on, speed.shape).tolist()
        share = np.zeros((len(snap.job), len(room.free)))
        placed = [False] * len(gang)
        for m, j in zip(row[order].tolist(), kind[order].tolist(), strict=True):
            if not placed[m] and room.has(m, j, gang[m][j]):
                placed[m] = True
                room.take(m, j, gang[m][j])
                share[m, j] = 1.0
        return job_allocation(snap, share)
