"""Where jobs may run under the limits of their tenants: a gang holds its devices all at once."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.job import Tenant
from fairlead.model.profiles import Profiles


def whole(limit: float) -> float:
    """Return a limit in whole devices, a part of one as one."""
    return limit if math.isinf(limit) else math.ceil(limit - 1e-9)


def within_tenant_limits(
    profiles: Profiles, tenants: Sequence[Tenant], accelerators: Sequence[str]
) -> Profiles:
    """Return the profiles with speed 0 where their gang is larger than its tenants may ever hold.

    The same object if none is. A gang that would be left nowhere to run is as it was: it waits
    until a limit is raised.
    """
    if not any(tenant.limit for tenant in tenants) or not len(profiles.gang):
        return profiles
    need = profiles.gang_on
    if profiles.min_gang is not None:
        need = np.minimum(need, profiles.min_gang[:, None])
    may = need <= _most(tenants, accelerators)[profiles.tenant]
    speed = np.where(may, profiles.speed, 0.0)
    stuck = ~np.logical_or.reduce(speed > 0, axis=1)
    speed[stuck] = profiles.speed[stuck]
    if np.array_equal(speed, profiles.speed):
        return profiles
    member = profiles.member
    if member is not None:  # gangs may be mixed: better of one accelerator than never
        member = np.where(may | stuck[:, None], member, 0.0)
    return replace(profiles, speed=speed, member=member)


def _most(tenants: Sequence[Tenant], accelerators: Sequence[str]) -> FloatArray:
    """Return tenants × accelerators → devices that it may hold at a time, as all around it may."""
    by_id = {tenant.id: tenant for tenant in tenants}
    most = np.full((len(tenants), len(accelerators)), np.inf)
    for row, tenant in zip(most, tenants, strict=True):
        outer: Tenant | None = tenant
        while outer is not None:
            limits = [whole(outer.limit.get(kind, math.inf)) for kind in accelerators]
            np.minimum(row, limits, out=row)
            outer = by_id.get(outer.parent or "")
    return most
