"""Counts of jobs by tenant, those of removed jobs included; metrics show them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MAX_LABELS = 200
"""tenants that metrics name"""
OTHERS = "(others)"
"""label of all further tenants; no tenant has this name"""


@dataclass(slots=True)
class TenantCounts:
    """Counts of one tenant since its first job."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    preemptions: int = 0
    """leases after which a job had to wait for another one"""
    lease_failures: int = 0
    """leases that ended in a crash"""
    lost_s: float = 0.0
    """seconds of leases whose steps were in no checkpoint and were repeated"""

    def count_end(self, state: str) -> None:
        """Count a job that ends as finished, failed or cancelled."""
        setattr(self, state, getattr(self, state) + 1)

    def add(self, other: "TenantCounts") -> None:
        """Add the counts of another tenant."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


class TenantTotals:
    """Counts by tenant; a replay of the event log gives the same."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, TenantCounts] = {}

    def of(self, tenant: str) -> TenantCounts:
        """Return the counts of a tenant, to be changed."""
        return self._by_tenant.setdefault(tenant, TenantCounts())

    def by_label(self) -> dict[str, TenantCounts]:
        """Return the counts of the tenants that metrics name, and the sum of all others."""
        counts: dict[str, TenantCounts] = {}
        for tenant, label in self.labels().items():
            counts.setdefault(label, TenantCounts()).add(self._by_tenant[tenant])
        return counts

    def labels(self) -> dict[str, str]:
        """Return tenant → its label in metrics, whose number is limited."""
        return {
            tenant: tenant if number < MAX_LABELS else OTHERS
            for number, tenant in enumerate(tuple(self._by_tenant))
        }

    def saved(self) -> dict[str, Any]:
        """Return all counts, for ``restore``."""
        return {tenant: asdict(counts) for tenant, counts in self._by_tenant.items()}

    def restore(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the counts that ``saved`` returned."""
        self._by_tenant = {tenant: TenantCounts(**counts) for tenant, counts in saved.items()}
