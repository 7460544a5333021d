"""Tickets of tenants on each accelerator, and of their jobs on each node (§3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot

_SETTLED = 1e-7
_ROUNDS = 32
_LEAST = 1 / 16
"""the part of its tickets that every job keeps, so that none starves"""


@dataclass(frozen=True, eq=False)
class DeviceSites:
    """A cluster's sites: each node's devices of one accelerator; those of lost nodes are empty."""

    accelerator: IntArray
    """sites → accelerator"""
    size: IntArray
    """sites → devices that are up"""
    of_device: IntArray
    """devices → site"""

    @classmethod
    def of(cls, snap: Snapshot) -> "DeviceSites":
        """Return the sites of the snapshot's cluster."""
        of_device, accelerator = snap.cluster.servers
        size = np.bincount(of_device[snap.usable], minlength=len(accelerator))
        return cls(accelerator, size, of_device)

    def __len__(self) -> int:
        return len(self.accelerator)

    @cached_property
    def up(self) -> Sequence[IntArray]:
        """Accelerators → its sites with devices."""
        count = int(self.accelerator.max(initial=-1)) + 1
        return [((self.accelerator == k) & (self.size > 0)).nonzero()[0] for k in range(count)]

    @cached_property
    def place(self) -> IntArray:
        """Sites → its place among those of its accelerator."""
        place = np.zeros(len(self), dtype=np.int64)
        for up in self.up:
            place[up] = np.arange(len(up))
        return place


@dataclass(frozen=True, slots=True, eq=False)
class SiteClaims:
    """The devices that jobs can use: one entry per job and site of its home."""

    row: IntArray
    site: IntArray
    devices: IntArray
    gang: IntArray
    """entries → the whole gang of the job"""
    tenant: IntArray
    """entries → tenant × accelerators + accelerator"""


def serviceable_tickets(
    claims: SiteClaims, sites: DeviceSites, tickets: FloatArray, due: FloatArray
) -> FloatArray:
    """Return rows → devices' worth of tickets that its site can serve.

    Eq. 3 divides a tenant's tickets evenly over its jobs, which is fair when all nodes carry
    the same load. Where they do not, a job on a crowded node gets less than its tickets and one
    on an empty node more. So a tenant that gets more than its total due (``due``, by tenant ×
    accelerator) steps back where others want more, until neither holds.
    Figure 1(d) needs this: its users get 3, 3 and 2 devices only if the jobs that run alone on
    one server count for their owners on the other.
    """
    if compiled is not None:
        in_c = np.empty_like(tickets)
        columns = claims.row, claims.site, claims.devices, claims.gang, claims.tenant, sites.size
        compiled.served_tickets(*columns, tickets, due, in_c)
        return in_c
    factor = np.ones_like(due)
    part = claims.devices / claims.gang
    base = tickets[claims.row] * part
    served = np.zeros_like(tickets)
    for _ in range(_ROUNDS):
        devices = _fill_sites(claims, sites, base * factor[claims.tenant])
        before, served = served, np.full_like(tickets, np.inf)
        np.minimum.at(served, claims.row, devices / part)
        served[np.isinf(served)] = 0.0
        if np.abs(served - before).max(initial=0.0) <= _SETTLED:
            break
        got = np.bincount(claims.tenant, served[claims.row] * part, len(due))
        ratio = np.divide(due, got, out=np.ones_like(due), where=got > 0)
        factor = np.clip(factor * ratio, _LEAST, 1.0)
    return served


def _fill_sites(claims: SiteClaims, sites: DeviceSites, weight: FloatArray) -> FloatArray:
    """Return entries → devices: each site's divided by weight, none above what it can use."""
    count = len(sites)
    open_: BoolArray = np.ones(len(weight), dtype=bool)
    while True:
        left = sites.size - np.bincount(claims.site, np.where(open_, 0, claims.devices), count)
        mass = np.bincount(claims.site, np.where(open_, weight, 0.0), count)
        with np.errstate(divide="ignore", invalid="ignore"):
            devices = weight * (left / mass)[claims.site]
        full = open_ & (devices >= claims.devices)
        if not full.any():
            return np.where(open_, devices, claims.devices)
        open_ &= ~full
