"""Priorities: whoever has a higher one is served first, by the same policy on all there is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance
from fairlead.model.job import per_accelerator_gangs_error
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart, allocate, effective_speed
from fairlead.policies.rules.quotas import Quotas, any_quota
from fairlead.policies.rules.validation import check_allocation, held, is_third_party
from fairlead.registry import create


def policy_named(spec: str) -> "PriorityPolicy":
    """Return the policy that ``spec`` names, minding priorities."""
    return PriorityPolicy(create("policies", spec), spec)


@dataclass(frozen=True)
class PriorityPolicy:
    """A policy that shares out the devices by rank: the next rank gets what the last one left.

    A job's rank is its tenant's priority, then its own. Without priorities this is the policy
    itself. The objective and its certificate are those of the highest rank. The shares of a policy
    from outside the package are checked.
    """

    policy: Policy
    name: str = ""
    """what errors call it"""

    @property
    def reads_progress(self) -> bool:
        """Whether the policy looks at the steps that jobs have made."""
        return getattr(self.policy, "reads_progress", True)

    @property
    def realised_by(self) -> str:
        """The mechanism that the policy prefers."""
        return getattr(self.policy, "realised_by", "shares")

    @property
    def takes_alternatives(self) -> bool:
        """Whether a job may need other numbers of devices on other accelerators."""
        return getattr(self.policy, "takes_alternatives", False)

    @property
    def divides_among_tenants(self) -> bool:
        """Whether tenants' weights count."""
        return getattr(self.policy, "divides_among_tenants", False)

    @property
    def fills_idle(self) -> bool:
        """Whether devices that no share claims may go to waiting jobs."""
        return getattr(self.policy, "fills_idle", True)

    def check_lengths(self, instance: Instance) -> None:
        """Refuse an instance that leaves out a length which the policy reads."""
        if not self.reads_progress:
            return
        always = getattr(self.policy, "reads_progress_without_deadline", True)
        for i, job in enumerate(instance.jobs):
            if job.steps_left is None and (always or job.deadline_s is not None):
                raise InputError(
                    f"{self.name} looks at how long jobs are, and job {job.id!r} does not say",
                    fix="give the steps that it has left",
                    field=f"jobs[{i}].steps_left",
                )

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares of all ranks together."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, with the solver state that the caller keeps."""
        if not self.takes_alternatives and snap.has_per_accelerator_gangs:
            row = int((snap.gang_on != snap.gang[:, None]).any(axis=1).argmax())
            raise per_accelerator_gangs_error(snap.ids[int(snap.job[row])])
        ranks = _rows_by_priority(snap)
        if len(ranks) <= 1:
            return self._asked(snap, warm)
        room, found = snap.devices, []
        quotas = Quotas(snap) if any_quota(snap) else None
        later = np.ones(len(snap.tenants), dtype=bool)
        for rows in ranks:
            offered = room
            if quotas is not None:
                # A guarantee holds against those of higher rank, too.
                later[snap.tenant[rows]] = False
                offered = np.maximum(room - quotas.reserved(later), 0.0)
            part = snap.only(rows, offered)
            allocation = self._asked(part, warm)
            found.append((part, allocation))
            room = np.maximum(room - held(part, allocation), 0.0).round(12)
        return _merge_allocations(snap, ranks, found)

    def _asked(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        allocation = allocate(self.policy, snap, warm)
        if is_third_party(self.policy):
            check_allocation(self.name or type(self.policy).__name__, snap, allocation)
        return allocation


def _rows_by_priority(snap: Snapshot) -> list[IntArray]:
    """Return the rows of each rank, highest first, each in the snapshot's order.

    None at all: nobody has a priority.
    """
    by_tenant = [tenant.priority for tenant in snap.tenants]
    if not any(by_tenant) and not np.count_nonzero(snap.priority):
        return []
    key = np.column_stack([np.array(by_tenant or [0])[snap.tenant], snap.priority])
    kinds, rank = np.unique(-key, axis=0, return_inverse=True)
    return [(rank.ravel() == r).nonzero()[0] for r in range(len(kinds))]


def _merge_allocations(
    snap: Snapshot, ranks: list[IntArray], found: Sequence[tuple[Snapshot, Allocation]]
) -> Allocation:
    first = found[0][1]
    width = max(allocation.members.shape[1] for _, allocation in found)
    members, speed = [], np.zeros(len(snap.job))
    for rows, (part, allocation) in zip(ranks, found, strict=True):
        padded = np.full((len(allocation.members), width), -1, dtype=np.int64)
        padded[:, : allocation.members.shape[1]] = allocation.members
        members.append(padded)
        if allocation.rows == "jobs":
            speed[rows] = effective_speed(part, allocation)
    member = np.concatenate(members)
    share = np.concatenate([allocation.share for _, allocation in found])
    if first.rows == "tenants":
        member, share, speed = _by_tenant(member, share, found)
    order = np.argsort(member[:, 0], kind="stable")
    return replace(
        first,
        members=member[order],
        share=share[order],
        speed=speed,
        trades=tuple(trade for _, a in found for trade in a.trades),
        late=tuple(job for _, a in found for job in a.late),
    )


def _by_tenant(
    member: IntArray, share: FloatArray, found: Sequence[tuple[Snapshot, Allocation]]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return one row a tenant, ascending: the sum of what it has at each rank."""
    tenant, row = np.unique(member[:, 0], return_inverse=True)
    total = np.zeros((len(tenant), share.shape[1]))
    np.add.at(total, row, share)
    speed = np.zeros(len(tenant))
    given = [a.speed if a.speed is not None else np.zeros(len(a.share)) for _, a in found]
    np.add.at(speed, row, np.concatenate(given))
    return tenant.reshape(-1, 1), total, speed
