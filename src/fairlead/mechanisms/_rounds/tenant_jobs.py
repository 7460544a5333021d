"""Tenants' devices as time shares of their jobs."""

from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property

import numpy as np

from fairlead.mechanisms.base import RealisesPolicy
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart, job_allocation
from fairlead.policies.rules.tenant_rows import SupportsDivision, TenantTable, divide_warm

_MAX_OFFERS = 100
_TINY = 1e-9
"""devices, relative to all of the accelerator, that are not worth offering"""


def job_rows(policy: Policy) -> Policy:
    """Return the policy with its devices of tenants as time shares of jobs.

    A policy around another one (priorities, quotas) stays around it, and so deals with what
    jobs can really use.
    """
    if isinstance(policy, SupportsDivision):
        return TenantJobShares(policy)
    if not isinstance(policy, RealisesPolicy) or not is_dataclass(policy):
        raise UsageError(
            "this mechanism divides devices of tenants, which the policy does not give;"
            " leave out --mechanism"
        )
    return replace(policy, policy=job_rows(policy.policy))


@dataclass(frozen=True)
class TenantJobShares:
    """A policy's devices of tenants as time shares of jobs: no device idle that a job could use.

    Within a tenant jobs have time in proportion to their weights, or, where it asks for
    ``fifo``, those that came first have all of theirs first.
    """

    policy: SupportsDivision

    @cached_property
    def capabilities(self) -> Capabilities:
        """Those of the policy; a job's devices are counted by its gang alone."""
        return replace(capabilities_of(self.policy), per_accelerator_gangs=False)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the jobs' shares of time on each accelerator."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, using and updating the caller's solver state."""
        division = divide_warm(self.policy, snap, warm)
        table = division.table
        row, gang = table.row_of_job, snap.gang
        runs = row >= 0
        demand = np.bincount(row[runs], gang[runs], len(table.tenant)).astype(float)
        held = redistribute(table, division.devices, demand)
        share = np.zeros((len(row), len(snap.capacity)))
        first_come = np.array([tenant.inner == "fifo" for tenant in snap.tenants] or [False])
        fair = jobs = runs.nonzero()[0]
        if first_come.any():
            in_order = first_come[np.minimum(table.tenant, len(first_come) - 1)]
            fair, queued = jobs[~in_order[row[jobs]]], jobs[in_order[row[jobs]]]
            queued = queued[np.lexsort((snap.job[queued], snap.arrival_at[queued], row[queued]))]
            share[queued] = _queued_shares(held, table.gain, row[queued], gang[queued])
        share[fair] = _fair_shares(held, row[fair], gang[fair], snap.weight[fair])
        share[share < 1e-12] = 0.0
        used = (share * gang[:, None]).sum(axis=0)
        share *= np.minimum(1.0, table.capacity / np.maximum(used, 1e-300))
        return job_allocation(snap, share)


def redistribute(table: TenantTable, devices: FloatArray, demand: FloatArray) -> FloatArray:
    """Return virtual tenants × accelerators → devices, none idle that a tenant could use.

    No tenant holds more than its ``demand``; of its devices it keeps the fastest. The rest is
    offered repeatedly, by weight, to tenants that have too few or slower ones.
    """
    fastest = _FastestDevices(table.gain, demand)
    held = fastest.of(np.where(table.gain > 0, devices, 0.0))
    little, weight = _TINY * table.capacity, table.weight[:, None]
    for _ in range(_MAX_OFFERS):
        spare = np.maximum(table.capacity - held.sum(axis=0), 0.0)
        claim = (fastest.wants_more(held) & (spare > little)) * weight
        better = fastest.of(held + spare * claim / np.maximum(claim.sum(axis=0), 1e-300))
        changed = np.abs(better - held).max(initial=0.0)
        held = better
        if changed <= _TINY:
            break
    return _assign_remainders(held, table, demand)


class _FastestDevices:
    """Each row's fastest devices, no more than its demand."""

    def __init__(self, gain: FloatArray, demand: FloatArray) -> None:
        order = np.argsort(-gain, axis=1, kind="stable")
        self._gain = gain
        self._demand = demand[:, None]
        self._enough = demand * (1 - _TINY)
        # Places in the flat table: columns by falling gain, and back.
        first = np.arange(len(gain))[:, None] * gain.shape[1]
        self._sorted = first + order
        self._back = first + np.argsort(order, axis=1)

    def of(self, devices: FloatArray) -> FloatArray:
        """Return what each row keeps of its devices, all of which it can use."""
        upto = np.minimum(devices.take(self._sorted).cumsum(axis=1), self._demand)
        upto[:, 1:] -= upto[:, :-1].copy()
        kept: FloatArray = upto.take(self._back)
        return kept

    def wants_more(self, held: FloatArray) -> BoolArray:
        """Return where a row would take more: it has too few devices, or slower ones."""
        slowest = np.where(held > _TINY, self._gain, np.inf).min(axis=1)
        slowest[held.sum(axis=1) < self._enough] = 0.0
        wants: BoolArray = self._gain > slowest[:, None]
        return wants


def _assign_remainders(held: FloatArray, table: TenantTable, demand: FloatArray) -> FloatArray:
    """Return the devices with the last remainders given to the first rows that can use them."""
    held = held.copy()
    for j, spare in enumerate((table.capacity - held.sum(axis=0)).tolist()):
        room = np.where(table.gain[:, j] > 0, np.maximum(demand - held.sum(axis=1), 0.0), 0.0)
        upto = np.minimum(room.cumsum(), max(spare, 0.0))
        upto[1:] -= upto[:-1].copy()
        held[:, j] += upto
    return held


def _fair_shares(
    held: FloatArray, row: IntArray, gang: IntArray, weight: FloatArray
) -> FloatArray:
    """Return jobs × accelerators → time in proportion to weight, at most all of it.

    All jobs of a row have its accelerators in the same mix.
    """
    total = held.sum(axis=1)
    time = np.zeros(len(row))
    full = np.zeros(len(row), dtype=bool)
    while True:
        left = total - np.bincount(row, gang * full, len(total))
        claims = np.bincount(row, np.where(full, 0.0, gang * weight), len(total))
        rate = np.divide(left, claims, out=np.zeros_like(left), where=claims > 0)
        time = np.where(full, 1.0, rate[row] * weight)
        more = (time >= 1.0) & ~full
        if not more.any():
            break
        full |= more
    mix = np.divide(held, total[:, None], out=np.zeros_like(held), where=total[:, None] > 0)
    share: FloatArray = np.maximum(time, 0.0)[:, None] * mix[row]
    return share


def _queued_shares(
    held: FloatArray, gain: FloatArray, row: IntArray, gang: IntArray
) -> FloatArray:
    """Return jobs × accelerators → time of jobs in the order given: fastest devices first."""
    order = np.argsort(-gain, axis=1, kind="stable")
    end = np.take_along_axis(held, order, axis=1).cumsum(axis=1)[row]
    start = np.column_stack([np.zeros(len(row)), end[:, :-1]])
    behind = np.cumsum(gang)
    first = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    before = (behind - gang) - (behind - gang)[first][np.cumsum(first) - 1]
    stop = (before + gang).astype(float)
    both = np.minimum(end, stop[:, None]) - np.maximum(start, before[:, None])
    share = np.zeros((len(row), held.shape[1]))
    np.put_along_axis(share, order[row], np.maximum(both, 0.0) / gang[:, None], axis=1)
    return share
