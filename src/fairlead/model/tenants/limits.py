"""Tenant limits applied to profiles: a gang holds all its devices at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairlead.model.profiles import Profiles
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree


def within_tenant_limits(
    profiles: Profiles, tenants: Sequence[Tenant], accelerators: Sequence[str]
) -> Profiles:
    """Return the profiles with speed 0 where their gang exceeds the limit of a tenant around it.

    Returns the same object if none does. A gang that could then run nowhere is left unchanged: it
    waits until a limit is raised.
    """
    if not any(tenant.limit for tenant in tenants) or not len(profiles.gang):
        return profiles
    need = profiles.gang_on
    if profiles.min_gang is not None:
        need = np.minimum(need, profiles.min_gang[:, None])
    may = need <= TenantTree(tenants).limits(accelerators)[profiles.tenant]
    speed = np.where(may, profiles.speed, 0.0)
    stuck = ~np.logical_or.reduce(speed > 0, axis=1)
    speed[stuck] = profiles.speed[stuck]
    if np.array_equal(speed, profiles.speed):
        return profiles
    member = profiles.member
    if member is not None:  # gangs may be mixed; one accelerator is better than none
        member = np.where(may | stuck[:, None], member, 0.0)
    return replace(profiles, speed=speed, member=member)
