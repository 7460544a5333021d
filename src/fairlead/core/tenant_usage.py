"""What tenants have used, forgotten by half over time, and how that moves their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.job import Tenant
from fairlead.model.profiles import Profiles
from fairlead.model.tenants.usage_decay import History

_COUNTS = 32
"""how often use is counted in a half-life"""
_QUARTERS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])
"""2^(0 to 3/4), a table so that every machine agrees: factors change in these steps, so that
shares are not computed anew for every trifle"""
_LEAST, _MOST = -3.0, 1.0
"""powers of two: a tenant's weight is at most doubled and at least an eighth of its own"""


class Usage:
    """Tenants' use in device-seconds, and the factors by which it moves their weights.

    A tenant that has used its entitled part of all use keeps its weight; one that has used
    nothing has twice its weight, and every further entitled part halves it.
    """

    def __init__(self) -> None:
        self.history: History | None = None
        self.used: FloatArray = np.zeros(0)
        """tenants → use as remembered at ``counted_at``"""
        self.total: FloatArray = np.zeros(0)
        """tenants → all use up to then"""
        self.factor: FloatArray = np.ones(0)
        """tenants → what its weight is multiplied by"""
        self.counted_at = 0.0
        self._moved: tuple[Profiles, Profiles] | None = None

    def set_baseline(self, total: FloatArray) -> None:
        """Count nothing of what was used before use is counted for the first time."""
        if total.any():
            self.used, self.total = np.zeros(len(total)), total
            self.factor = np.ones(len(total))

    def due(self, at: float) -> bool:
        """Tell whether it is time to count again."""
        history = self.history
        if history is None:
            return False
        return at - self.counted_at >= min(history.half_life_s / _COUNTS, 3600.0)

    def count(self, at: float, total: FloatArray, tenants: Sequence[Tenant]) -> bool:
        """Take in all use up to now; return whether a factor has changed."""
        assert self.history is not None
        more = len(tenants) - len(self.used)
        none = np.zeros(max(more, 0))
        used, before = np.append(self.used, none), np.append(self.total, none)
        # Six decimals hide the last bits, in which machines' powers may differ.
        kept = 2.0 ** -((at - self.counted_at) / self.history.half_life_s)
        self.used = (used * kept + (total - before)).round(6)
        self.total, self.counted_at = total, at
        factor = _factors(self.used, entitled(tenants))
        changed = not np.array_equal(factor, np.append(self.factor, none + 1.0))
        self.factor = factor
        if changed:
            self._moved = None
        return changed

    def moved(self, tenants: Sequence[Tenant]) -> Sequence[Tenant]:
        """Return the tenants with their weights moved."""
        if not len(self.factor):
            return tenants
        factor = np.append(self.factor, np.ones(len(tenants) - len(self.factor))).tolist()
        return [replace(t, weight=t.weight * f) for t, f in zip(tenants, factor, strict=True)]

    def weighted_profiles(self, profiles: Profiles) -> Profiles:
        """Return the profiles with their weights moved; the same object while nothing changes."""
        if not len(self.factor):
            return profiles
        if self._moved is None or self._moved[0] is not profiles:
            factor = np.ones(int(profiles.tenant.max()) + 1)
            count = min(len(factor), len(self.factor))
            factor[:count] = self.factor[:count]
            weight = profiles.weight * factor[profiles.tenant]
            self._moved = profiles, replace(profiles, weight=weight)
        return self._moved[1]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what ``columns`` gave."""
        for name, value in saved.items():
            setattr(self, name, value)

    def columns(self) -> dict[str, object]:
        """Return what makes up this state."""
        return {
            "history": self.history,
            "used": self.used,
            "total": self.total,
            "factor": self.factor,
            "counted_at": self.counted_at,
        }


def entitled(tenants: Sequence[Tenant]) -> FloatArray:
    """Return tenants → part of the cluster it is entitled to, weights divided down the tree."""
    rivals: dict[str | None, float] = {}
    for tenant in tenants:
        rivals[tenant.parent] = rivals.get(tenant.parent, 0.0) + tenant.weight
    by_id = {tenant.id: tenant for tenant in tenants}

    def part(tenant: Tenant) -> float:
        own = tenant.weight / rivals[tenant.parent]
        parent = by_id.get(tenant.parent or "")
        return own * part(parent) if parent else own

    return np.array([part(tenant) for tenant in tenants])


def _factors(used: FloatArray, part: FloatArray) -> FloatArray:
    everyone = float(used.sum())
    if everyone <= 0:
        return np.ones(len(used))
    power = 1.0 - used / everyone / part
    steps = np.round(len(_QUARTERS) * np.clip(power, _LEAST, _MOST)).astype(np.int64)
    whole, quarter = np.divmod(steps, len(_QUARTERS))
    factor: FloatArray = np.ldexp(_QUARTERS[quarter], whole)
    return factor
