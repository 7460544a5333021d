"""Isolation: an equal part of every accelerator for each job (Gavel §4.1, "isolated")."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import empty_allocation, job_allocation
from fairlead.policies.rules.quotas import Quotas, any_quota


@dataclass(frozen=True)
class Isolated:
    """Give each of n jobs 1/n of the devices of every accelerator.

    This is a static partition, the baseline of sharing incentive. Time that a job cannot use (an
    accelerator on which it does not run, more devices than its gang) is lost.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True
    )
    agnostic: bool = False
    """without effect: an equal split ignores speeds anyway"""
    packed: bool = False
    placement: bool = False

    def __post_init__(self) -> None:
        if self.packed or self.placement:
            option = "packed" if self.packed else "placement"
            raise UsageError(f"isolated:{option}: not supported: a static partition packs nothing")

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return capacity / (jobs × gang) for each accelerator, at most all of a job's time."""
        if not len(snap.job):
            return empty_allocation(snap)
        share = equal_split(snap, snap.devices)
        if any_quota(snap):
            share *= Quotas(snap).within_limits(share * snap.gang_on)
        return job_allocation(snap, share)


def equal_split(snap: Snapshot, devices: FloatArray) -> FloatArray:
    """Return jobs × accelerators → share, with an equal part of these devices for every job."""
    runs = (snap.speed > 0) & (snap.gang_on <= snap.capacity)
    share = np.where(runs, devices / (len(snap.job) * snap.gang_on), 0.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return share
