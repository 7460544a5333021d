"""Tenant tables: the tenants of a snapshot's jobs, their speedups, and their devices.

A tenant with several workloads becomes several virtual tenants that share its weight (OEF
§4.2.4); docs/design/tenants.md describes the normalisation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fairlead.model.allocation import Allocation, Certificate, Trade
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.base import WarmStart, accelerator_columns
from fairlead.policies.rules.quotas import Quotas, any_quota
from fairlead.solve.classes import merge

_DIGITS = 13
"""digits to which speedups are rounded, so that the unit of speeds does not matter"""
_MAX_KEPT = 512
"""sets of profiles whose virtual tenants are kept"""


@dataclass(frozen=True, slots=True, eq=False)
class TenantTable:
    """Virtual tenants: the jobs of one tenant with the same speedups on every accelerator.

    Rows are ordered by the tenant's id, then by speedups, so that the order in which tenants or
    jobs are listed does not matter.
    """

    tenant: IntArray
    """virtual tenants → tenant"""
    weight: FloatArray
    """virtual tenants → part of the tenant's weight"""
    gain: FloatArray
    """virtual tenants × accelerators → normalised throughput of one device, 0 if it cannot run"""
    capacity: FloatArray
    """accelerators → devices to divide"""
    row_of_job: IntArray
    """jobs → virtual tenant; -1 for jobs that fit on no accelerator"""
    tenants: int
    """number of tenants"""

    def by_tenant(self, rows: FloatArray) -> FloatArray:
        """Return tenants (× accelerators) → the sum over the tenant's virtual tenants."""
        total = np.zeros((self.tenants, *rows.shape[1:]))
        np.add.at(total, self.tenant, rows)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class TenantDivision:
    """The devices of each accelerator that every virtual tenant gets."""

    table: TenantTable
    devices: FloatArray
    """virtual tenants × accelerators"""
    worth: Callable[[], float] | None = None
    prove: Callable[[], Certificate] | None = None
    trades: tuple[Trade, ...] = ()

    @property
    def throughput(self) -> FloatArray:
        """virtual tenants → normalised throughput."""
        throughput: FloatArray = (self.table.gain * self.devices).sum(axis=1)
        return throughput

    def allocation(self) -> Allocation:
        """Return the tenants' rows; a tenant without jobs has a row of zeros."""
        table = self.table
        empty = not len(table.tenant)
        return Allocation(
            members=np.arange(table.tenants).reshape(-1, 1),
            share=table.by_tenant(self.devices),
            columns=accelerator_columns(len(table.capacity)),
            rows="tenants",
            measure="devices",
            speed=table.by_tenant(self.throughput),
            worth=None if empty else self.worth,
            prove=None if empty else self.prove,
            trades=self.trades,
        )


def within_quotas(snap: Snapshot, division: TenantDivision) -> TenantDivision:
    """Return the division with every tenant's devices brought within its quota.

    The certificate holds without quotas only, so it is dropped.
    """
    if not any_quota(snap):
        return division
    table = division.table
    before = table.by_tenant(division.devices)[: len(snap.tenants)]
    after = Quotas(snap).divided(before)
    part = division.devices / np.maximum(before, 1e-300)[table.tenant]
    by_weight = table.weight / np.bincount(table.tenant, table.weight, table.tenants)[table.tenant]
    # A tenant without devices of an accelerator divides its guaranteed devices by weight.
    part = np.where(before[table.tenant] > 0, part, by_weight[:, None])
    return TenantDivision(table, part * after[table.tenant], trades=division.trades)


class TenantPolicy(ABC):
    """A policy that divides devices among tenants, without regard to the progress of jobs."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, divides_among_tenants=True, mechanism="rounding"
    )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the tenants' devices of each accelerator."""
        return self.divide(snap).allocation()

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, using and updating the caller's solver state."""
        return self.divide_warm(snap, warm).allocation()

    @abstractmethod
    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""

    def divide_warm(self, snap: Snapshot, warm: WarmStart) -> TenantDivision:
        """Return the same, using and updating the caller's solver state if there is a solver."""
        del warm
        return self.divide(snap)


@runtime_checkable
class SupportsDivision(Protocol):
    """A policy with rows of tenants that assigns devices to their virtual tenants."""

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        ...


def divide_warm(policy: SupportsDivision, snap: Snapshot, warm: WarmStart) -> TenantDivision:
    """Return the policy's division, from a warm start where the policy supports one."""
    if isinstance(policy, TenantPolicy):
        return policy.divide_warm(snap, warm)
    return policy.divide(snap)


def tenant_table(snap: Snapshot, warm: WarmStart | None = None) -> TenantTable:
    """Return the virtual tenants of the snapshot's jobs, with their speedups.

    With ``warm`` those that come again are not computed again.
    """
    recent = _RecentRows() if warm is None else warm.state(_RecentRows, _RecentRows)
    rows = recent.rows(snap)
    row_of_job = rows.row_of_profile[snap.profile]
    return TenantTable(rows.tenant, rows.weight, rows.gain, snap.devices, row_of_job, rows.tenants)


@dataclass(frozen=True, slots=True, eq=False)
class _ProfileRows:
    """The virtual tenants of the profiles that have jobs."""

    tenant: IntArray
    weight: FloatArray
    gain: FloatArray
    row_of_profile: IntArray
    """profiles → virtual tenant; -1 for those without jobs or that fit on no accelerator"""
    tenants: int

    @classmethod
    def of(cls, snap: Snapshot, used: IntArray) -> "_ProfileRows":
        """Return the virtual tenants of the profiles ``used``."""
        profiles = snap.profiles
        gang = profiles.gang[used]
        shape = _relative_speeds(profiles.speed[used] / gang[:, None])
        usable = (shape > 0) & (gang[:, None] <= snap.capacity)
        runs = usable.any(axis=1)
        tenants = max(len(snap.tenants), int(profiles.tenant[used].max(initial=-1)) + 1)
        rank = _id_order(snap.tenants, tenants)[profiles.tenant[used]]
        keys = np.column_stack([rank.astype(float), shape, usable])[runs]
        distinct, index = _distinct_rows(keys)
        row_of_profile = np.full(len(profiles.gang), -1)
        row_of_profile[used[runs]] = index
        width = len(snap.capacity)
        owner = np.argsort(_id_order(snap.tenants, tenants))[distinct[:, 0].astype(np.int64)]
        row_of_job = row_of_profile[snap.profile]
        part = _mean_weight(row_of_job, profiles.weight[snap.profile], len(distinct))
        active = np.bincount(owner, minlength=tenants) > 0
        whole = np.bincount(owner, part, tenants)[owner]
        weight = TenantTree(snap.tenants).entitlements(active)[owner] * part / whole
        shapes, open_ = distinct[:, 1 : 1 + width], distinct[:, 1 + width :] > 0
        gain = _round(shapes * _slowest_speed(shapes, weight)[:, None])
        return cls(owner, weight, gain * open_, row_of_profile, tenants)


class _RecentRows:
    """The virtual tenants of the last snapshots, by the profiles that had jobs."""

    def __init__(self) -> None:
        self._content: tuple[object, ...] = ()
        self._rows: dict[bytes, _ProfileRows] = {}

    def rows(self, snap: Snapshot) -> _ProfileRows:
        """Return the virtual tenants of a snapshot, computed now or kept."""
        profiles = snap.profiles
        jobs = np.bincount(snap.profile, minlength=len(profiles.gang))
        content = (
            *(profiles.content, profiles.tenant.tobytes(), snap.capacity.tobytes()),
            snap.tenants,
        )
        if content != self._content:
            self._content, self._rows = content, {}
        # Unequal weights of jobs are averaged, so that the number of jobs counts, too.
        alike = bool((profiles.weight == 1.0).all())
        key = (jobs > 0).tobytes() if alike else jobs.tobytes()
        rows = self._rows.pop(key, None)
        if rows is None:
            rows = _ProfileRows.of(snap, jobs.nonzero()[0])
        self._rows[key] = rows  # the most recent one is last
        if len(self._rows) > _MAX_KEPT:
            del self._rows[next(iter(self._rows))]
        return rows


def _id_order(tenants: Sequence[Tenant], count: int) -> IntArray:
    """Return tenants → position in the order of ids; tenants that are not listed come last."""
    rank = np.arange(count)
    rank[sorted(range(len(tenants)), key=lambda i: tenants[i].id)] = np.arange(len(tenants))
    return rank


def _distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the distinct rows in lexicographic order, and rows → position among these."""
    classes = merge(rows)
    distinct = rows[classes.representative]
    order = np.lexsort(distinct.T[::-1])
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return distinct[order], position[classes.index_of_member]


def _relative_speeds(speed: FloatArray) -> FloatArray:
    """Return the speeds of each row relative to its least speed above 0."""
    least = np.where(speed > 0, speed, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    return _round(speed / least)


def _round(value: FloatArray) -> FloatArray:
    size = np.floor(np.log10(np.where(value > 0, value, 1.0)))
    scale = 10.0 ** np.clip(_DIGITS - size, 0, 22)
    rounded: FloatArray = np.rint(value * scale) / scale
    return rounded


def _mean_weight(row: IntArray, weight: FloatArray, count: int) -> FloatArray:
    """Return rows → mean weight of their jobs, independent of the order of jobs."""
    order = np.lexsort((weight, row))
    order = order[row[order] >= 0]
    members = np.bincount(row[order], minlength=count)
    mean: FloatArray = np.bincount(row[order], weight[order], count) / members
    return mean


def _slowest_speed(shape: FloatArray, weight: FloatArray) -> FloatArray:
    """Return rows → speed on the row's slowest accelerator, in units of the common slowest one.

    The common slowest accelerator is the one that is slowest for the greatest weight. A row that
    cannot run on it gets the typical speedup from it to the row's slowest accelerator: the
    geometric mean by weight over the rows that run on both, 1 if there are none.
    """
    if not len(shape):
        return np.zeros(0)
    runs = shape > 0
    own = np.where(runs, shape, np.inf).argmin(axis=1)
    votes = np.bincount(own, weight, shape.shape[1])
    # Votes that differ by rounding only are equal; then the first in the cluster's order.
    unit = shape[:, int((votes >= votes.max() * (1 - 1e-9)).argmax())]
    typical = np.ones(shape.shape[1])
    for j in np.unique(own[unit <= 0]).tolist():
        both = runs[:, j] & (unit > 0)
        if both.any():
            ratio = np.log(shape[both, j] / unit[both])
            typical[j] = np.exp((weight[both] * ratio).sum() / weight[both].sum())
    return np.where(unit > 0, 1.0 / np.where(unit > 0, unit, 1.0), typical[own])
