"""From a snapshot's jobs to tenants and their speedups, and from devices of tenants to an answer.

A tenant with several workloads becomes several virtual tenants that share its weight (OEF
§4.2.4); see docs/design/tenants.md for what is normalised by what.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fairlead.model.allocation import Allocation, Certificate, Trade
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import accelerator_columns
from fairlead.policies.rules.quotas import Quotas, any_quota
from fairlead.solve.classes import merge

_DIGITS = 13
"""speedups are rounded to so many, so that the unit in which speeds are given does not matter"""


@dataclass(frozen=True, slots=True, eq=False)
class TenantTable:
    """Virtual tenants: the jobs of one tenant that gain alike from every accelerator.

    Rows are ordered by the tenant's id, then by speedups, so that nothing depends on the order
    in which tenants or jobs are listed.
    """

    tenant: IntArray
    """virtual tenants → tenant"""
    weight: FloatArray
    """virtual tenants → part of the tenant's weight"""
    gain: FloatArray
    """virtual tenants × accelerators → normalised throughput of one device, 0 if it cannot run"""
    capacity: FloatArray
    """accelerators → devices to share out"""
    row_of_job: IntArray
    """jobs → virtual tenant; -1 for jobs that no accelerator has enough devices for"""
    tenants: int
    """how many tenants there are"""

    def by_tenant(self, rows: FloatArray) -> FloatArray:
        """Return tenants (× accelerators) → the sum over the tenant's virtual tenants."""
        total = np.zeros((self.tenants, *rows.shape[1:]))
        np.add.at(total, self.tenant, rows)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class TenantDivision:
    """How many devices of each accelerator every virtual tenant gets."""

    table: TenantTable
    devices: FloatArray
    """virtual tenants × accelerators"""
    worth: Callable[[], float] | None = None
    prove: Callable[[], Certificate] | None = None
    trades: tuple[Trade, ...] = ()

    @property
    def throughput(self) -> FloatArray:
        """virtual tenants → normalised throughput."""
        found: FloatArray = (self.table.gain * self.devices).sum(axis=1)
        return found

    def allocation(self) -> Allocation:
        """Return the tenants' rows; a tenant without jobs has a row of zeros."""
        table = self.table
        nobody = not len(table.tenant)
        return Allocation(
            members=np.arange(table.tenants).reshape(-1, 1),
            share=table.by_tenant(self.devices),
            columns=accelerator_columns(len(table.capacity)),
            rows="tenants",
            measure="devices",
            speed=table.by_tenant(self.throughput),
            worth=None if nobody else self.worth,
            prove=None if nobody else self.prove,
            trades=self.trades,
        )


def within_quotas(snap: Snapshot, division: TenantDivision) -> TenantDivision:
    """Return the division with every tenant's devices brought within its quota.

    What the policy has proved holds without quotas only, so the certificate goes.
    """
    if not any_quota(snap):
        return division
    table = division.table
    before = table.by_tenant(division.devices)[: len(snap.tenants)]
    after = Quotas(snap).divided(before)
    part = division.devices / np.maximum(before, 1e-300)[table.tenant]
    by_weight = table.weight / np.bincount(table.tenant, table.weight, table.tenants)[table.tenant]
    # Who had nothing of an accelerator divides what it is guaranteed by weight.
    part = np.where(before[table.tenant] > 0, part, by_weight[:, None])
    return TenantDivision(table, part * after[table.tenant], trades=division.trades)


class TenantPolicy(ABC):
    """A policy that divides devices among tenants, whatever progress their jobs have made."""

    reads_progress: ClassVar[bool] = False
    divides_among_tenants: ClassVar[bool] = True
    realised_by: ClassVar[str] = "rounding"

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the tenants' devices of each accelerator."""
        return self.divide(snap).allocation()

    @abstractmethod
    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""


@runtime_checkable
class SupportsDivision(Protocol):
    """A policy with rows of tenants that tells which of a tenant's jobs its devices are for."""

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        ...


def tenant_table(snap: Snapshot) -> TenantTable:
    """Return the virtual tenants that the snapshot's jobs make up, with their speedups."""
    profiles = snap.profiles
    used, profile = np.unique(snap.profile, return_inverse=True)
    gang = profiles.gang[used]
    shape = _shape(profiles.speed[used] / gang[:, None])
    usable = (shape > 0) & (gang[:, None] <= snap.capacity)
    runs = usable.any(axis=1)
    tenants = max(len(snap.tenants), int(profiles.tenant[used].max(initial=-1)) + 1)
    rank = _rank(snap.tenants, tenants)[profiles.tenant[used]]
    keys = np.column_stack([rank.astype(float), shape, usable])[runs]
    kinds, index = _distinct_rows(keys)
    row_of_profile = np.full(len(used), -1)
    row_of_profile[runs] = index
    row_of_job = row_of_profile[profile]
    width = len(snap.capacity)
    owner = np.argsort(_rank(snap.tenants, tenants))[kinds[:, 0].astype(np.int64)]
    part = _mean_weight(row_of_job, profiles.weight[snap.profile], len(kinds))
    active = np.bincount(owner, minlength=tenants) > 0
    whole = np.bincount(owner, part, tenants)[owner]
    weight = entitlements(snap.tenants, active)[owner] * part / whole
    shapes, open_ = kinds[:, 1 : 1 + width], kinds[:, 1 + width :] > 0
    gain = _round(shapes * _slowest_speed(shapes, weight)[:, None])
    return TenantTable(owner, weight, gain * open_, snap.devices, row_of_job, tenants)


def entitlements(tenants: Sequence[Tenant], active: BoolArray) -> FloatArray:
    """Return tenants → weight, where those inside another divide its weight among them.

    Only tenants with jobs (``active``), or around such, count. The jobs that a tenant has beside
    the tenants inside it count as one more of these, of weight 1.
    """
    if not any(tenant.parent is not None for tenant in tenants):
        weight = np.ones(len(active))
        weight[: len(tenants)] = [tenant.weight for tenant in tenants]
        return np.where(active, weight, 0.0)
    index = {tenant.id: i for i, tenant in enumerate(tenants)}
    parent = [-1 if t.parent is None else index.get(t.parent, -1) for t in tenants]
    counts = active.copy()
    for i in active.nonzero()[0].tolist():
        at = parent[i]
        while at >= 0 and not counts[at]:
            counts[at] = True
            at = parent[at]
    inside: dict[int, list[int]] = {}
    for i in counts.nonzero()[0].tolist():
        inside.setdefault(parent[i], []).append(i)
    weight = np.zeros(len(active))
    given = [(i, tenants[i].weight) for i in inside.get(-1, [])]
    for i, whole in given:
        children = inside.get(i, [])
        total = sum(sorted(tenants[c].weight for c in children)) + float(active[i])
        weight[i] = whole / total if active[i] else 0.0
        given += [(c, whole * tenants[c].weight / total) for c in children]
    return weight


def _rank(tenants: Sequence[Tenant], count: int) -> IntArray:
    """Return tenants → place in the order of ids; any that are not listed come last."""
    rank = np.arange(count)
    rank[sorted(range(len(tenants)), key=lambda i: tenants[i].id)] = np.arange(len(tenants))
    return rank


def _distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the distinct rows in lexicographic order, and rows → place among these."""
    classes = merge(rows)
    kinds = rows[classes.representative]
    order = np.lexsort(kinds.T[::-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return kinds[order], place[classes.index_of_member]


def _shape(speed: FloatArray) -> FloatArray:
    """Return the speeds of each row relative to its own least one above 0."""
    least = np.where(speed > 0, speed, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    return _round(speed / least)


def _round(value: FloatArray) -> FloatArray:
    size = np.floor(np.log10(np.where(value > 0, value, 1.0)))
    scale = 10.0 ** np.clip(_DIGITS - size, 0, 22)
    rounded: FloatArray = np.rint(value * scale) / scale
    return rounded


def _mean_weight(row: IntArray, weight: FloatArray, count: int) -> FloatArray:
    """Return rows → mean weight of their jobs, the same for any order of jobs."""
    order = np.lexsort((weight, row))
    order = order[row[order] >= 0]
    members = np.bincount(row[order], minlength=count)
    mean: FloatArray = np.bincount(row[order], weight[order], count) / members
    return mean


def _slowest_speed(shape: FloatArray, weight: FloatArray) -> FloatArray:
    """Return rows → speed on the row's own slowest accelerator, in units of the common one.

    The common slowest accelerator is the one that is slowest for the greatest weight. Who
    cannot run on it is taken to gain from it to its own slowest what the others gain who run
    on both (their geometric mean by weight; 1 if there are none).
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
