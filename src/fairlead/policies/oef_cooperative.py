"""OEF for tenants who cooperate: the greatest total without envy (OEF §4.2.2, program 10)."""

from dataclasses import dataclass

from fairlead.model.allocation import Certificate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    tenant_table,
    within_quotas,
)
from fairlead.solve import solve_envy_free


@dataclass(frozen=True)
class OefCooperative(TenantPolicy):
    """Maximise the total normalised throughput such that no tenant prefers another's devices.

    Devices are compared per unit of weight. Everyone gets at least what its part of every
    accelerator would give it. The objective is the total.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        table = tenant_table(snap)
        found = solve_envy_free(table.gain, table.weight, table.capacity)

        def prove() -> Certificate:
            return found.certificate

        def worth() -> float:
            return found.total

        return within_quotas(snap, TenantDivision(table, found.amount, worth, prove))
