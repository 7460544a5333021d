"""Entitled shares of tenants over time, by tenant weights or by job weights."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree


def mean_entitled_shares(
    jobs: Sequence[Job],
    names: Sequence[str],
    tenants: Sequence[Tenant],
    ends: FloatArray,
    until: float,
) -> FloatArray:
    """Return tenants → entitled share of the cluster, averaged over the time with unfinished jobs.

    With ``tenants``, those with unfinished jobs divide the cluster by their weights, down the
    tree; a tenant that is not listed has weight 1. Without, a tenant is entitled to its fraction
    of the weights of all unfinished jobs. ``ends`` are the end times of the jobs; jobs that
    arrive after ``until`` do not count.
    """
    here = [number for number, job in enumerate(jobs) if job.arrival_at <= until]
    place = {name: column for column, name in enumerate(names)}
    owner = np.array([place[jobs[number].tenant] for number in here], dtype=np.int64)
    weight = np.array([1.0 if tenants else jobs[number].weight for number in here])
    at = np.concatenate([[jobs[number].arrival_at for number in here], ends[here]])
    order = np.argsort(at, kind="stable")
    present = _active_weight(
        np.tile(owner, 2)[order], np.append(weight, -weight)[order], len(names)
    )
    length = np.diff(at[order])
    # Rounding errors remain in the sums after the last job has finished.
    busy = present.sum(axis=1) > 1e-9 * weight.sum()
    present, length = present[busy], length[busy]
    if tenants:
        present = _divided(present, names, tenants)
    parts = present / present.sum(axis=1, keepdims=True) * length[:, None]
    shares: FloatArray = parts.sum(axis=0) / max(length.sum(), 1e-300)
    return shares


def _active_weight(owner: IntArray, change: FloatArray, width: int) -> FloatArray:
    """Return intervals × tenants → total weight of the unfinished jobs."""
    changes = np.zeros((len(owner), width))
    changes[np.arange(len(owner)), owner] = change
    return changes.cumsum(axis=0)[:-1]


def _divided(present: FloatArray, names: Sequence[str], tenants: Sequence[Tenant]) -> FloatArray:
    """Return intervals × names → entitlement of a tenant among the tenants with jobs."""
    listed = {tenant.id for tenant in tenants}
    all_tenants = [*tenants, *(Tenant(name) for name in names if name not in listed)]
    number = {tenant.id: i for i, tenant in enumerate(all_tenants)}
    columns = [number[name] for name in names]
    groups, group = np.unique(present > 0.5, axis=0, return_inverse=True)
    tree = TenantTree(all_tenants)
    active = np.zeros((len(groups), len(all_tenants)), dtype=np.bool_)
    active[:, columns] = groups
    entitled = np.array([tree.entitlements(row)[columns] for row in active])
    return entitled.reshape(-1, len(names))[group.reshape(-1)]
