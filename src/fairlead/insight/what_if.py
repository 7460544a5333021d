"""Consequences of another policy, other weights and quotas, or other numbers of devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.insight.bundles import (
    job_devices,
    job_speeds,
    normalised,
    participants_of,
    tenant_devices,
)
from fairlead.model.allocation import Allocation, Trade
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantProposal:
    """Another weight or quota of a tenant; None keeps the present one."""

    id: str
    weight: float | None = None
    guarantee: Mapping[str, float] | None = None
    limit: Mapping[str, float] | None = None

    def applied_to(self, tenant: Tenant) -> Tenant:
        """Return the tenant with these values."""
        return replace(
            tenant,
            weight=tenant.weight if self.weight is None else self.weight,
            guarantee=tenant.guarantee if self.guarantee is None else self.guarantee,
            limit=tenant.limit if self.limit is None else self.limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Shares under one policy on one instance; by accelerator in the order of the cluster."""

    tenant_devices: Mapping[str, Mapping[str, float]]
    """tenant → accelerator → average number of devices"""
    tenant_speed: Mapping[str, float]
    """tenant → speed of its jobs, in devices of average speed of the present cluster"""
    job_speed: Mapping[str, float] = field(default_factory=dict)
    """job → steps per second; empty for a policy that divides among tenants"""
    trades: Sequence[Trade] = ()


def proposed_instance(
    instance: Instance, tenants: Sequence[TenantProposal], devices: Mapping[str, int]
) -> tuple[Instance, list[str]]:
    """Return the instance with these changes, and the jobs that could no longer run.

    ``devices`` gives new totals; accelerators that it does not name keep theirs.
    """
    # Jobs also have speeds on accelerators of which no device is up.
    counts = dict.fromkeys((name for job in instance.jobs for name in job.speeds), 0)
    counts |= instance.cluster.count_by_name()
    for name, count in devices.items():
        if name not in counts:
            fix = f"expected one of {', '.join(counts)}"
            raise InputError(f"no accelerator {name!r}", fix=fix, field="devices")
        counts[name] = count
    changed = {tenant.id: tenant for tenant in instance.tenants}
    for proposal in tenants:
        if proposal.id not in changed:
            fix = f"expected one of {', '.join(changed) or 'none: no tenant has jobs'}"
            raise InputError(f"no tenant {proposal.id!r}", fix=fix, field="tenants")
        changed[proposal.id] = proposal.applied_to(changed[proposal.id])
    stranded = [job.id for job in instance.jobs if not _can_run(job, counts)]
    jobs = tuple(job for job in instance.jobs if job.id not in set(stranded))
    cluster = Cluster.of(counts, details=instance.cluster.details)
    return Instance(cluster, jobs, tuple(changed.values())), stranded


def _can_run(job: InstanceJob, counts: Mapping[str, int]) -> bool:
    return any(
        speed > 0 and job.gang_on(name) <= counts.get(name, 0)
        for name, speed in job.speeds.items()
    )


def outcome(instance: Instance, policy: Policy, cluster: Cluster) -> Outcome:
    """Return the shares of a policy; speeds count in devices of average speed of ``cluster``."""
    if not instance.jobs:
        return Outcome(tenant_devices={}, tenant_speed={})
    snap = snapshot_of(instance)
    allocation = policy.allocate(snap)
    base = snapshot_of(Instance(cluster, instance.jobs, instance.tenants))
    if allocation.rows == "tenants":
        return _of_tenants(snap, base, allocation)
    return _of_jobs(snap, base, allocation)


def _of_tenants(snap: Snapshot, base: Snapshot, allocation: Allocation) -> Outcome:
    participants = participants_of(base, allocation)
    held = tenant_devices(snap, allocation, participants)
    average = base.devices / base.devices.sum()
    bundles = _columns(snap, base, held)
    speed = {}
    for i, name in enumerate(participants.names):
        value, unit = participants.value(i, np.stack([bundles[i], average])).tolist()
        speed[name] = value / max(unit, 1e-300)
    return Outcome(
        tenant_devices={
            name: _by_name(snap, held[i]) for i, name in enumerate(participants.names)
        },
        tenant_speed=speed,
        trades=allocation.trades,
    )


def _columns(snap: Snapshot, base: Snapshot, held: FloatArray) -> FloatArray:
    """Return devices by the accelerators of another snapshot, which may have more of them."""
    number = {name: i for i, name in enumerate(snap.cluster.accelerators)}
    columns = np.zeros((len(held), len(base.cluster.accelerators)))
    for i, name in enumerate(base.cluster.accelerators):
        if name in number:
            columns[:, i] = held[:, number[name]]
    return columns


def _of_jobs(snap: Snapshot, base: Snapshot, allocation: Allocation) -> Outcome:
    speed, held = job_speeds(snap, allocation), job_devices(snap, allocation)
    value = normalised(base, speed)
    devices: dict[str, FloatArray] = {}
    total: dict[str, float] = {}
    for row, number in enumerate(snap.tenant.tolist()):
        name = snap.tenants[number].id
        devices[name] = devices.get(name, np.zeros(held.shape[1])) + held[row]
        total[name] = total.get(name, 0.0) + float(value[row])
    return Outcome(
        tenant_devices={name: _by_name(snap, each) for name, each in devices.items()},
        tenant_speed=total,
        job_speed={snap.ids[int(job)]: float(speed[row]) for row, job in enumerate(snap.job)},
        trades=allocation.trades,
    )


def _by_name(snap: Snapshot, devices: FloatArray) -> dict[str, float]:
    return dict(zip(snap.cluster.accelerators, devices.tolist(), strict=True))


def trade_text(trade: Trade) -> str:
    """Return a trade in words."""
    return (
        f"{trade.seller} gave {trade.slow_devices:.4g} {trade.slow} for"
        f" {trade.fast_devices:.4g} {trade.fast} of {trade.buyer}; both gained"
    )
