"""Weights that count between tenants: a tenant cannot gather its weight on one of its jobs."""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot


def fair_weights(snap: Snapshot) -> FloatArray:
    """Return jobs → weight; with several tenants the mean weight of the tenant's jobs.

    A vertex of the program serves jobs of greater value entirely, not in proportion. So a tenant
    could overtake others by moving all of its weight to one job after another.
    """
    weight, tenant = snap.weight, snap.tenant
    count = np.bincount(tenant)
    if np.count_nonzero(count) <= 1:
        return weight
    mean = np.bincount(tenant, weight) / np.maximum(count, 1)
    of_job: FloatArray = mean[tenant]
    return of_job
