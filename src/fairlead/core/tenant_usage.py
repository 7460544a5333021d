"""Decaying tenant usage, and the weight factors that follow from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.profiles import Profiles
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree
from fairlead.model.tenants.usage_decay import History

_COUNTS = 32
"""counts per half-life"""
_QUARTERS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])
"""2^(0 to 3/4), a table so that every machine agrees; factors change in these steps, so that
small differences do not change shares"""
_MIN_POWER, _MAX_POWER = -3.0, 1.0
"""limits of a factor's exponent: weights are at most doubled and at least divided by eight"""

_MIN_PINNED_FACTOR = 1 / 64
"""least factor on the weight of a tenant whose pinned leases use up its entitlement"""


class Usage:
    """Tenants' usage in device-seconds, and the factors on their weights.

    A tenant that has used its entitlement keeps its weight. A tenant that has used nothing has
    twice its weight, and every further multiple of the entitlement halves the weight.
    """

    def __init__(self) -> None:
        self.history: History | None = None
        self.used: FloatArray = np.zeros(0)
        """tenants → decayed usage at ``counted_at``"""
        self.total: FloatArray = np.zeros(0)
        """tenants → total usage at ``counted_at``"""
        self.factor: FloatArray = np.ones(0)
        """tenants → factor on its weight"""
        self.counted_at = 0.0
        self._weighted: tuple[Profiles, Profiles] | None = None

    def set_baseline(self, total: FloatArray) -> None:
        """Ignore the usage before the first count."""
        if total.any():
            self.used, self.total = np.zeros(len(total)), total
            self.factor = np.ones(len(total))

    def due(self, at: float) -> bool:
        """Return whether usage should be counted again."""
        history = self.history
        if history is None:
            return False
        return at - self.counted_at >= min(history.half_life_s / _COUNTS, 3600.0)

    def count(self, at: float, total: FloatArray, tenants: Sequence[Tenant]) -> bool:
        """Count the total usage up to now; return whether a factor has changed."""
        assert self.history is not None
        more = len(tenants) - len(self.used)
        none = np.zeros(max(more, 0))
        used, before = np.append(self.used, none), np.append(self.total, none)
        # Six decimals hide the last bits, in which machines' powers may differ.
        kept = 2.0 ** -((at - self.counted_at) / self.history.half_life_s)
        self.used = (used * kept + (total - before)).round(6)
        self.total, self.counted_at = total, at
        factor = _factors(self.used, TenantTree(tenants).entitled_shares())
        changed = not np.array_equal(factor, np.append(self.factor, none + 1.0))
        self.factor = factor
        if changed:
            self._weighted = None
        return changed

    def weighted_tenants(self, tenants: Sequence[Tenant]) -> Sequence[Tenant]:
        """Return the tenants with the factors applied to their weights."""
        if not len(self.factor):
            return tenants
        factor = np.append(self.factor, np.ones(len(tenants) - len(self.factor))).tolist()
        return [replace(t, weight=t.weight * f) for t, f in zip(tenants, factor, strict=True)]

    def weighted_profiles(self, profiles: Profiles) -> Profiles:
        """Return the profiles with the factors applied; the same object while nothing changes."""
        if not len(self.factor):
            return profiles
        if self._weighted is None or self._weighted[0] is not profiles:
            factor = np.ones(int(profiles.tenant.max()) + 1)
            count = min(len(factor), len(self.factor))
            factor[:count] = self.factor[:count]
            weight = profiles.weight * factor[profiles.tenant]
            self._weighted = profiles, replace(profiles, weight=weight)
        return self._weighted[1]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the content that ``columns`` returned."""
        for name, value in saved.items():
            setattr(self, name, value)

    def columns(self) -> dict[str, object]:
        """Return the usage and factors, for ``restore``."""
        return {
            "history": self.history,
            "used": self.used,
            "total": self.total,
            "factor": self.factor,
            "counted_at": self.counted_at,
        }


def charge_pinned(
    tenants: Sequence[Tenant], active: BoolArray | None, held: IntArray, devices: int
) -> Sequence[Tenant]:
    """Return the tenants with lower weights where pinned leases use up their entitlement.

    The remaining devices are then divided as if the pinned ones had been part of the division,
    among the ``active`` tenants, which have jobs. None: as if all had, as earlier versions did.
    """
    tree = TenantTree(tenants)
    inside = tree.inside(range(len(tenants)))
    if active is None:
        entitled = tree.entitled_shares()
    else:
        weight = tree.entitlements(active)
        entitled = inside @ weight / max(float(weight.sum()), 1e-12)
    left = 1.0 - (inside @ held) / np.maximum(entitled * devices, 1e-9)
    factor = np.clip(left, _MIN_PINNED_FACTOR, 1.0).tolist()
    return [replace(t, weight=t.weight * f) for t, f in zip(tenants, factor, strict=True)]


def remaining_guarantees(
    tenants: Sequence[Tenant], held: FloatArray, accelerators: Sequence[str]
) -> Sequence[Tenant]:
    """Return the tenants with guarantees less the devices that they hold outside of plans.

    ``held`` is tenants × accelerators → devices.
    """
    inside = TenantTree(tenants).inside(range(len(tenants))) @ held
    column = {name: j for j, name in enumerate(accelerators)}
    return [
        replace(
            tenant,
            guarantee={
                name: max(devices - float(inside[i, column[name]]), 0.0)
                for name, devices in tenant.guarantee.items()
                if name in column
            },
        )
        for i, tenant in enumerate(tenants)
    ]


def _factors(used: FloatArray, part: FloatArray) -> FloatArray:
    total = float(used.sum())
    if total <= 0:
        return np.ones(len(used))
    power = 1.0 - used / total / part
    steps = np.round(len(_QUARTERS) * np.clip(power, _MIN_POWER, _MAX_POWER)).astype(np.int64)
    whole, quarter = np.divmod(steps, len(_QUARTERS))
    factor: FloatArray = np.ldexp(_QUARTERS[quarter], whole)
    return factor
