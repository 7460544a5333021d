"""OEF for tenants who compete: equal normalised throughput (OEF §4.2.1, program 9)."""

from dataclasses import dataclass

from fairlead.model.allocation import Certificate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    tenant_table,
    within_quotas,
)
from fairlead.solve import solve_equal


@dataclass(frozen=True)
class Oef(TenantPolicy):
    """Give all tenants the same normalised throughput for their weight, as much as possible.

    No tenant gains by reporting a speedup above its own. Who cannot use what stops the others
    gets more, until nothing that anybody can use is left. The objective is the least throughput
    per unit of weight.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        table = tenant_table(snap)
        found = solve_equal(table.gain, table.weight, table.capacity)

        def prove() -> Certificate:
            return found.certificate

        def worth() -> float:
            return found.least

        return within_quotas(snap, TenantDivision(table, found.amount, worth, prove))
