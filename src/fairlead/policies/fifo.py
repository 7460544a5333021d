"""First in, first out, each job on the fastest accelerator left (Gavel §4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import job_allocation, reject_unit_options
from fairlead.policies.rules.quotas import QuotaCapacity


@dataclass(frozen=True)
class Fifo:
    """Serve jobs in order of arrival, each on the fastest accelerator with enough free devices.

    A job that does not fit blocks the jobs behind it; the mechanism may lend them the devices
    that stay idle. ``agnostic`` uses the accelerators in the cluster's order instead of by
    speed.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True
    )
    agnostic: bool = False
    """use the accelerators in the cluster's order instead of by speed"""
    packed: bool = False
    """refused: a partner would slow the job in front"""
    placement: bool = False
    """refused: jobs hold whole devices, which the mechanism consolidates"""

    def __post_init__(self) -> None:
        why = "a partner would slow the job in front"
        reject_unit_options("fifo", packed=why if self.packed else None, placement=self.placement)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return all of the time on one accelerator for as many of the first jobs as fit."""
        speed = snap.profiles.speed
        preference: FloatArray = (speed > 0).astype(float) if self.agnostic else speed
        orders = np.argsort(-preference, axis=1, kind="stable").tolist()
        runs = (preference > 0).tolist()
        gangs = np.broadcast_to(snap.profiles.gang_on, speed.shape).tolist()
        ways = [
            [(j, gang[j]) for j in order if able[j]]
            for order, able, gang in zip(orders, runs, gangs, strict=True)
        ]
        up = snap.capacity.tolist()
        room = QuotaCapacity(snap)
        share = np.zeros((len(snap.job), len(up)))
        waiting_order = np.lexsort((snap.job, snap.arrival_at))
        for row, profile in zip(
            waiting_order.tolist(), snap.profile[waiting_order].tolist(), strict=True
        ):
            fitting = (way for way in ways[profile] if room.fits(row, *way))
            best = next(fitting, None)
            if best is None:
                if room.limited:
                    continue  # perhaps its own tenant's limit stops it
                if any(up[j] >= gang for j, gang in ways[profile]):
                    break
                continue  # too few devices are up for it to run at all: it blocks no other job
            room.take(row, *best)
            share[row, best[0]] = 1.0
            if not any(room.free):
                break
        return job_allocation(snap, share)
