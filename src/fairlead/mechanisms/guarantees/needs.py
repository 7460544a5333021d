"""Whole devices that tenants are guaranteed, and the jobs that can use them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rules.quotas import Quotas


@dataclass(frozen=True, eq=False)
class Needs:
    """Guarantees in whole devices; a tenant inside another one comes before it."""

    inside: BoolArray
    """holders × tenants → whether the holder's guarantee covers the tenant"""
    devices: IntArray
    """holders × accelerators → whole devices that it is guaranteed"""

    @classmethod
    def of(cls, snap: Snapshot) -> "Needs":
        """Return the guarantees in devices of a snapshot's tenants.

        A guarantee in speed is met by any devices that give this speed on average, so no round
        has to reserve some for it.
        """
        quotas = Quotas(snap)
        devices = np.floor(quotas.guarantee + 1e-9).astype(np.int64)
        devices[[holder.guarantee_in == "speed" for holder in quotas.holders]] = 0
        some = np.flatnonzero(devices.any(axis=1))
        inner_first = some[np.argsort(quotas.inside[some].sum(axis=1), kind="stable")]
        return cls(quotas.inside[inner_first], devices[inner_first])

    def covering(self, tenant: int) -> IntArray:
        """Return the holders whose guarantee covers a tenant."""
        return np.flatnonzero(self.inside[:, tenant])


def has_guarantees(snap: Snapshot) -> bool:
    """Return whether any tenant of a snapshot has a guarantee."""
    return any(tenant.guarantee for tenant in snap.tenants)


def fitting_jobs(gangs: Sequence[int], devices: int) -> list[int]:
    """Return the indices of gangs that use most of the devices; earlier ones are preferred."""
    if devices < 1:
        return []
    reachable = [1]  # after the last gang: bit n is set if n devices can be used exactly
    within = (1 << (devices + 1)) - 1
    for gang in reversed(gangs):
        reachable.append((reachable[-1] | reachable[-1] << min(gang, devices + 1)) & within)
    target = reachable[-1].bit_length() - 1
    chosen = []
    for i, gang in enumerate(gangs):
        rest = reachable[len(gangs) - i - 1]
        if gang <= target and rest >> (target - gang) & 1:
            chosen.append(i)
            target -= gang
    return chosen


def by_turn(snap: Snapshot, rows: IntArray) -> IntArray:
    """Return jobs in the order in which a tenant's guarantee serves them.

    Higher priorities come first, then jobs that have had least for their weight.
    """
    had: FloatArray = snap.device_s[rows] / snap.weight[rows]
    keys = (rows, snap.arrival_at[rows], had, -snap.priority[rows], -snap.precedence[rows])
    return rows[np.lexsort(keys)]
