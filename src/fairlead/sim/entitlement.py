"""What tenants were entitled to while jobs were there: by their own weights or by their jobs'."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job, Tenant
from fairlead.policies.rules.tenant_rows import entitlements


def mean_entitled_shares(
    jobs: Sequence[Job],
    names: Sequence[str],
    tenants: Sequence[Tenant],
    ends: FloatArray,
    until: float,
) -> FloatArray:
    """Return names of tenants → part of the cluster, averaged over the time with unfinished jobs.

    Where ``tenants`` are given these divide the cluster by their weights, down the tree, at every
    time among those with unfinished jobs; any other is one more of weight 1. Where none are, a
    tenant has its part of the weights of all unfinished jobs. ``ends`` are those of the jobs, and
    jobs that arrive after ``until`` do not count.
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
    lasts = np.diff(at[order])
    # Sums of weights leave dust when all have gone.
    busy = present.sum(axis=1) > 1e-9 * weight.sum()
    present, lasts = present[busy], lasts[busy]
    if tenants:
        present = _divided(present, names, tenants)
    parts = present / present.sum(axis=1, keepdims=True) * lasts[:, None]
    found: FloatArray = parts.sum(axis=0) / max(lasts.sum(), 1e-300)
    return found


def _active_weight(owner: IntArray, change: FloatArray, width: int) -> FloatArray:
    """Return intervals × tenants → what all jobs that are there weigh."""
    changes = np.zeros((len(owner), width))
    changes[np.arange(len(owner)), owner] = change
    return changes.cumsum(axis=0)[:-1]


def _divided(present: FloatArray, names: Sequence[str], tenants: Sequence[Tenant]) -> FloatArray:
    """Return intervals × names → weight that a tenant has among those with jobs."""
    listed = {tenant.id for tenant in tenants}
    everyone = [*tenants, *(Tenant(name) for name in names if name not in listed)]
    number = {tenant.id: i for i, tenant in enumerate(everyone)}
    columns = [number[name] for name in names]
    groups, group = np.unique(present > 0.5, axis=0, return_inverse=True)
    active = np.zeros((len(groups), len(everyone)), dtype=np.bool_)
    active[:, columns] = groups
    found = np.array([entitlements(everyone, row)[columns] for row in active])
    return found.reshape(-1, len(names))[group.reshape(-1)]
