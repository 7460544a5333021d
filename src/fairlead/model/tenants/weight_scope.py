"""Scope of job weights and priorities: the whole cluster, the tenant, or its entitlement."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.job import Job
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree

WeightScope = Literal["cluster", "tenant", "entitlement"]
"""The jobs with which weights and priorities of jobs are compared.

``cluster``: all jobs, as in the papers. ``tenant``: jobs of the same tenant; together the jobs of
a tenant weigh no more than with weight 1 each. ``entitlement``: the same, and together they weigh
the entitlement of the tenant, however many they are.
"""


def across_tenants(jobs: Sequence[Job]) -> BoolArray | None:
    """Return jobs → whether its numbers count against all tenants; None if none's do."""
    across = np.array([job.across_tenants for job in jobs], dtype=bool)
    return across if across.any() else None


def number_searches(jobs: Sequence[Job]) -> IntArray | None:
    """Return jobs → number of the search it is part of, ABSENT for none; None if none is."""
    if all(job.multijob is None for job in jobs):
        return None
    known: dict[tuple[str, str], int] = {}
    return np.array(
        [
            ABSENT
            if job.multijob is None
            else known.setdefault((job.tenant, job.multijob), len(known))
            for job in jobs
        ]
    )


def searches_as_one_job(profiles: Profiles, count: IntArray) -> Profiles:
    """Return the profiles with weights at which a hyperparameter search weighs as one job.

    ``count`` is profiles → active jobs. The trials of a search divide the greatest weight among
    them in proportion to their weights. Returns the same object if no weight changes.
    """
    if profiles.search is None:
        return profiles
    rows = ((profiles.search != ABSENT) & (count > 0)).nonzero()[0]
    search, weight = profiles.search[rows], profiles.weight[rows]
    greatest = np.zeros(int(profiles.search.max()) + 1)
    np.maximum.at(greatest, search, weight)
    total = np.bincount(search, count[rows] * weight, len(greatest))
    if (total == greatest).all():
        return profiles
    divided = profiles.weight.copy()
    divided[rows] = weight * (greatest[search] / total[search])
    return replace(profiles, weight=divided)


def scoped_profiles(
    profiles: Profiles, count: IntArray, tenants: Sequence[Tenant], scope: WeightScope
) -> Profiles:
    """Return the profiles with weights that are comparable across tenants.

    ``count`` is profiles → active jobs. Weights that an admin set are kept. Returns the same
    object if no weight changes.
    """
    if scope == "cluster" or not len(count):
        return profiles
    own = np.where(acts_across(profiles), 0, count)
    if scope == "tenant":
        factor = _within_tenant(profiles, own, len(tenants))
    else:
        factor = _to_entitlement(profiles, own, tenants)
    scale = np.where(acts_across(profiles), 1.0, factor[profiles.tenant])
    if (scale == 1.0).all():
        return profiles
    return replace(profiles, weight=profiles.weight * scale)


def scoped_precedence(
    profiles: Profiles, profile: IntArray, priority: FloatArray, scope: WeightScope
) -> FloatArray:
    """Return jobs → priority that counts against the jobs of all tenants."""
    if scope == "cluster" or not priority.any():
        return priority
    return np.where(acts_across(profiles)[profile], priority, 0.0)


def acts_across(profiles: Profiles) -> BoolArray:
    """Return profiles → whether an admin set its weight or priority."""
    if profiles.across_tenants is None:
        return np.zeros(len(profiles.gang), dtype=bool)
    return profiles.across_tenants


def _within_tenant(profiles: Profiles, count: IntArray, tenants: int) -> FloatArray:
    """Return tenants → factor, at most 1.

    Its jobs, and the devices of its gangs, weigh at most 1 each on average: policies divide by
    job or by device.
    """
    factor = np.ones(tenants)
    for size in (count, count * profiles.gang):
        number = np.bincount(profiles.tenant, size, tenants)
        weight = np.bincount(profiles.tenant, size * profiles.weight, tenants)
        over = weight > number
        factor[over] = np.minimum(factor[over], number[over] / weight[over])
    return factor


def _to_entitlement(profiles: Profiles, count: IntArray, tenants: Sequence[Tenant]) -> FloatArray:
    """Return tenants → factor that gives its jobs the weight of its entitlement together.

    The mean weight of all jobs is 1.
    """
    weight = np.bincount(profiles.tenant, count * profiles.weight, len(tenants))
    active: BoolArray = weight > 0
    entitled = TenantTree(tenants).entitlements(active)
    total = float(count.sum())
    part = entitled / max(float(entitled.sum()), 1e-300)
    return np.where(active, total * part / np.where(active, weight, 1.0), 1.0)
