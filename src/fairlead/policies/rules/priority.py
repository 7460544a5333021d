"""Priorities: jobs of a higher priority are served first, by the same policy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance
from fairlead.model.job import per_accelerator_gangs_error
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart, allocate, effective_speed
from fairlead.policies.rules.quotas import Quotas, any_quota
from fairlead.policies.rules.tenant_priority import with_tenant_priorities
from fairlead.policies.rules.validation import check_allocation, devices_held
from fairlead.registry import create


def create_policy(spec: str) -> "PriorityPolicy":
    """Return the policy named by ``spec``, with priorities."""
    return PriorityPolicy(create("policies", spec), spec)


@dataclass(frozen=True)
class PriorityPolicy:
    """A policy applied to one priority after the other: each gets the devices left by the last.

    A job's rank is its tenant's priority, then the priority that counts against other tenants
    (``precedence``); inside a tenant jobs exchange time by their priorities (``tenant_priority``).
    Without priorities this is the policy itself. The objective and its certificate are those of
    the highest rank. All shares are validated.
    """

    policy: Policy
    name: str = ""
    """name in error messages"""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy."""
        return capabilities_of(self.policy)

    def check_lengths(self, instance: Instance) -> None:
        """Raise InputError if an instance omits steps that the policy reads."""
        capabilities = self.capabilities
        if not capabilities.reads_progress:
            return
        always = capabilities.reads_progress_without_deadline
        for i, job in enumerate(instance.jobs):
            if job.steps_left is None and (always or job.deadline_s is not None):
                raise InputError(
                    f"missing for job {job.id!r}",
                    fix=f"{self.name} needs it",
                    field=f"jobs[{i}].steps_left",
                )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares of all rows_by_rank together."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, using and updating the caller's solver state."""
        return with_tenant_priorities(snap, self._by_rank(snap, warm))

    def _by_rank(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        if not self.capabilities.per_accelerator_gangs and snap.has_per_accelerator_gangs:
            row = int((snap.gang_on != snap.gang[:, None]).any(axis=1).argmax())
            raise per_accelerator_gangs_error(snap.ids[int(snap.job[row])])
        rows_by_rank = _rows_by_priority(snap)
        if len(rows_by_rank) <= 1:
            return self._checked_allocation(snap, warm)
        free, parts = snap.devices, []
        quotas = Quotas(snap) if any_quota(snap) else None
        later = np.ones(len(snap.tenants), dtype=bool)
        for rows in rows_by_rank:
            offered = free
            if quotas is not None:
                # A guarantee also holds against jobs of higher rank.
                later[snap.tenant[rows]] = False
                offered = np.maximum(free - quotas.reserved(later), 0.0)
            part = snap.subset(rows, offered)
            allocation = self._checked_allocation(part, warm)
            parts.append((part, allocation))
            free = np.maximum(free - devices_held(part, allocation), 0.0).round(12)
        return _merge_allocations(snap, rows_by_rank, parts)

    def _checked_allocation(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        allocation = allocate(self.policy, snap, warm)
        check_allocation(self.name or type(self.policy).__name__, snap, allocation)
        return allocation


def has_priorities(snap: Snapshot) -> bool:
    """Return whether some tenant or job has a priority."""
    return any(tenant.priority for tenant in snap.tenants) or bool(
        np.count_nonzero(snap.precedence)
    )


def _rows_by_priority(snap: Snapshot) -> list[IntArray]:
    """Return the rows of each rank, highest first, each in the snapshot's order.

    The list is empty if there are no priorities.
    """
    if not has_priorities(snap):
        return []
    by_tenant = [tenant.priority for tenant in snap.tenants]
    key = np.column_stack([np.array(by_tenant or [0])[snap.tenant], snap.precedence])
    distinct, rank = np.unique(-key, axis=0, return_inverse=True)
    return [(rank.ravel() == r).nonzero()[0] for r in range(len(distinct))]


def _merge_allocations(
    snap: Snapshot, rows_by_rank: list[IntArray], parts: Sequence[tuple[Snapshot, Allocation]]
) -> Allocation:
    first = parts[0][1]
    width = max(allocation.members.shape[1] for _, allocation in parts)
    members, speed = [], np.zeros(len(snap.job))
    for rows, (part, allocation) in zip(rows_by_rank, parts, strict=True):
        padded = np.full((len(allocation.members), width), -1, dtype=np.int64)
        padded[:, : allocation.members.shape[1]] = allocation.members
        members.append(padded)
        if allocation.rows == "jobs":
            speed[rows] = effective_speed(part, allocation)
    member = np.concatenate(members)
    share = np.concatenate([allocation.share for _, allocation in parts])
    if first.rows == "tenants":
        member, share, speed = _by_tenant(member, share, parts)
    order = np.argsort(member[:, 0], kind="stable")
    return replace(
        first,
        members=member[order],
        share=share[order],
        speed=speed,
        trades=tuple(trade for _, a in parts for trade in a.trades),
        late=tuple(job for _, a in parts for job in a.late),
    )


def _by_tenant(
    member: IntArray, share: FloatArray, parts: Sequence[tuple[Snapshot, Allocation]]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return one row per tenant, ascending: the sum over ranks."""
    tenant, row = np.unique(member[:, 0], return_inverse=True)
    total = np.zeros((len(tenant), share.shape[1]))
    np.add.at(total, row, share)
    speed = np.zeros(len(tenant))
    by_rank = [a.speed if a.speed is not None else np.zeros(len(a.share)) for _, a in parts]
    np.add.at(speed, row, np.concatenate(by_rank))
    return tenant.reshape(-1, 1), total, speed
