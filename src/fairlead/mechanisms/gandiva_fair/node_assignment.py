"""Homes of jobs, and the tickets and load that follow from them (§3.2)."""

import math
from collections.abc import Mapping

import numpy as np

from fairlead.mechanisms._tickets.effective_tickets import AcceleratorPool
from fairlead.mechanisms.gandiva_fair.memory import NOWHERE, SPREAD
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites, SiteClaims, serviceable_tickets
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


class JobHomes:
    """The homes of a snapshot's jobs, as a plan changes them; columns over the snapshot's rows.

    ``tickets`` is tenants × accelerators, in devices; every tenant has some of each.
    """

    def __init__(self, snap: Snapshot, sites: DeviceSites, tickets: FloatArray) -> None:
        self.snap, self.sites, self.tickets = snap, sites, tickets
        self.profile = np.ascontiguousarray(snap.profile)
        self.gang, self.tenant = (
            column.take(self.profile) for column in (snap.profiles.gang, snap.profiles.tenant)
        )
        self.mass = self.gang * snap.weight
        """rows → its part of its tenant's tickets"""
        n, n_accelerators = len(snap.job), tickets.shape[1]
        self.home: IntArray = np.full(n, NOWHERE, dtype=np.int64)
        self.accelerator: IntArray = np.full(n, NOWHERE, dtype=np.int64)
        """rows → accelerator of its home"""
        self.needs: dict[int, Mapping[int, int]] = {}
        """row of a gang that spans sites → site → devices"""
        self.pools = [
            AcceleratorPool(tickets[:, k], float(snap.capacity[k])) for k in range(n_accelerators)
        ]
        self.owing = np.ones(tickets.shape)
        """tenants × accelerators → factor on its jobs' tickets, for what it missed before"""
        self.up = sites.up
        """accelerator → its sites"""
        self.wanted: IntArray = np.zeros(len(sites), dtype=np.int64)
        """sites → devices that the jobs with a home there can use at once"""
        self._mass = np.zeros(tickets.shape)
        self._mass_at = [np.zeros((len(tickets), len(up))) for up in self.up]
        """accelerator → tenants × its sites → mass of homes there"""
        self._entitled: FloatArray | None = None
        """entitled devices; None after a change of homes"""

    # -- coming and going -----------------------------------------------------------------------

    def set_home(self, row: int, where: Mapping[int, int]) -> None:
        """Make these sites (→ devices of each) the home of a job without one."""
        first = next(iter(where))
        self.home[row] = first if len(where) == 1 else SPREAD
        self.accelerator[row] = self.sites.accelerator[first]
        if len(where) > 1:
            self.needs[row] = where
        self._count(row, where, 1)

    def restore_homes(self, rows: IntArray, site: IntArray) -> None:
        """Give many small jobs the homes that they had, before any other job has one."""
        if not len(rows):
            return
        tenants, width, sites = *self.tickets.shape, len(self.sites)
        accelerator, tenant = self.sites.accelerator[site], self.tenant[rows]
        gang, mass = self.gang[rows], self.mass[rows]
        self.home[rows], self.accelerator[rows] = site, accelerator
        self._entitled = None
        self.wanted = np.bincount(site, gang, sites).astype(np.int64)
        cell = tenant * width + accelerator
        self._mass = _sums(cell, mass, self.tickets.shape)
        demand = _sums(cell, gang, self.tickets.shape)
        for k, pool in enumerate(self.pools):
            pool.restore(demand[:, k].copy())
        by_site = _sums(tenant * sites + site, mass, (tenants, sites))
        self._mass_at = [by_site.take(up, axis=1) for up in self.up]

    def clear_home(self, row: int) -> None:
        """Take a job's home away."""
        site = int(self.home[row])
        where = self.needs.pop(row) if site == SPREAD else {site: int(self.gang[row])}
        self._count(row, where, -1)
        self.home[row] = self.accelerator[row] = NOWHERE

    def _count(self, row: int, where: Mapping[int, int], sign: int) -> None:
        tenant, accelerator = int(self.tenant[row]), int(self.accelerator[row])
        gang, mass = int(self.gang[row]), sign * float(self.mass[row])
        for site, devices in where.items():
            self._mass_at[accelerator][tenant, self.sites.place[site]] += mass * devices / gang
            self.wanted[site] += sign * devices
        self._mass[tenant, accelerator] += mass
        self._entitled = None
        self.pools[accelerator].add(tenant, sign * gang)

    def has_pools_like(self, other: "JobHomes") -> bool:
        """Return whether the pools of other homes, with equal demand and due, answer alike."""
        return all(pool.answers_as_if_divided for pool in (*self.pools, *other.pools))

    # -- tickets and load -------------------------------------------------------------------------

    def entitled_devices(self) -> FloatArray:
        """tenants × accelerators → devices that it is due."""
        if self._entitled is None:
            self._entitled = _columns([pool.due for pool in self.pools])
        return self._entitled

    def demands(self) -> FloatArray:
        """tenants × accelerators → devices that its jobs with a home there can use."""
        return _columns([pool.demand for pool in self.pools])

    def _rates(self) -> FloatArray:
        """tenants × accelerators → tickets for one unit of mass: ticketsPerGPU of Eq. 1."""
        tickets = self.entitled_devices() * self.owing
        rates: FloatArray = np.divide(
            tickets, self._mass, out=np.zeros_like(tickets), where=self._mass > 0
        )
        return rates

    def load(self, accelerator: int) -> FloatArray:
        """Return the ticketLoadPerGPU of Eq. 2 of an accelerator's sites, in the order of up."""
        mass = self._mass[:, accelerator]
        has = (mass > 0).nonzero()[0]
        rate = self.pools[accelerator].due[has] * self.owing[has, accelerator] / mass[has]
        # A plain sum: a BLAS product may round differently from one machine to the next.
        tickets = (rate[:, None] * self._mass_at[accelerator][has]).sum(axis=0)
        load: FloatArray = tickets / self.sites.size[self.up[accelerator]]
        return load

    def job_tickets(self) -> FloatArray:
        """rows → jobTickets of Eq. 3, 0 without a home."""
        tickets = np.zeros(len(self.home))
        rows = (self.accelerator >= 0).nonzero()[0]
        tickets[rows] = self.mass[rows] * self._rates()[self.tenant[rows], self.accelerator[rows]]
        return tickets

    def served(self, tickets: FloatArray) -> FloatArray:
        """rows → how many of the jobs' tickets their homes can serve, 0 without a home."""
        small = (self.home >= 0).nonzero()[0]
        large = [(row, site, n) for row, where in self.needs.items() for site, n in where.items()]
        more = np.array(large, dtype=np.int64).reshape(-1, 3)
        row = np.concatenate([small, more[:, 0]])
        site = np.concatenate([self.home[small], more[:, 1]])
        devices = np.concatenate([self.gang[small], more[:, 2]])
        tenant = self.tenant[row] * len(self.pools) + self.sites.accelerator[site]
        claims = SiteClaims(row, site, devices, self.gang[row], tenant)
        return serviceable_tickets(
            claims, self.sites, tickets, (self.entitled_devices() * self.owing).ravel()
        )


def _sums(cell: IntArray, amount: FloatArray | IntArray, shape: tuple[int, ...]) -> FloatArray:
    """Return a table of the amounts by cell, row by row, added up in their order."""
    sums: FloatArray = np.bincount(cell, amount, math.prod(shape)).astype(np.float64)
    return sums.reshape(shape)


def _columns(columns: list[FloatArray]) -> FloatArray:
    """Return the columns side by side."""
    table = np.empty((len(columns[0]), len(columns)))
    for k, column in enumerate(columns):
        table[:, k] = column
    return table
