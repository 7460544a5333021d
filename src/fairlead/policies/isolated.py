"""Isolation: an equal part of every accelerator for each job (Gavel §4.1, "isolated")."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import empty_allocation, job_allocation
from fairlead.policies.rules.quotas import Quotas, any_quota


@dataclass(frozen=True)
class Isolated:
    """Give each of n jobs 1/n of the devices of every accelerator.

    The trials of a hyperparameter search divide the part of one job in proportion to their
    weights. This is a static partition, the baseline of sharing incentive. Time that a job cannot
    use (an accelerator on which it does not run, more devices than its gang) is lost.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True
    )
    agnostic: bool = False
    """without effect: an equal split ignores speeds anyway"""
    packed: bool = False
    """refused: a static partition packs nothing"""
    placement: bool = False
    """refused, for the same reason"""

    def __post_init__(self) -> None:
        if self.packed or self.placement:
            option = "packed" if self.packed else "placement"
            raise UsageError(f"isolated:{option}: not supported: a static partition packs nothing")

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return capacity / (jobs × gang) for each accelerator, at most all of a job's time."""
        if not len(snap.job):
            return empty_allocation(snap)
        share = entitled_split(snap, snap.devices)
        if any_quota(snap):
            share *= Quotas(snap).within_limits(share * snap.gang_on)
        return job_allocation(snap, share)


def entitled_split(snap: Snapshot, devices: FloatArray) -> FloatArray:
    """Return the equal split with the part of one job for every hyperparameter search."""
    part = search_parts(snap)
    return _split(snap, devices, 1.0 if part is None else part[:, None])


def search_parts(snap: Snapshot) -> FloatArray | None:
    """Return jobs → part of the cluster, relative to 1 / jobs; None if all parts are equal."""
    if snap.profiles.search is None:
        return None
    search = snap.profiles.search[snap.profile]
    trials = search != ABSENT
    if not trials.any():
        return None
    weight, part = snap.weight[trials], np.ones(len(search))
    part[trials] = weight / np.bincount(search[trials], weight)[search[trials]]
    relative: FloatArray = part / part.mean()
    return relative


def isolated_elapsed_s(snap: Snapshot) -> FloatArray:
    """Return jobs → seconds that its steps so far would have taken on the entitled split."""
    part = search_parts(snap)
    return snap.isolated_elapsed_s if part is None else snap.isolated_elapsed_s / part


def equal_split(snap: Snapshot, devices: FloatArray) -> FloatArray:
    """Return jobs × accelerators → share, with an equal part of these devices for every job."""
    return _split(snap, devices, 1.0)


def _split(snap: Snapshot, devices: FloatArray, part: FloatArray | float) -> FloatArray:
    runs = (snap.speed > 0) & (snap.gang_on <= snap.capacity)
    share = np.where(runs, part * devices / (len(snap.job) * snap.gang_on), 0.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return share
