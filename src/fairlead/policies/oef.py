"""OEF for competing tenants: equal normalised throughput (OEF §4.2.1, program 9)."""

from dataclasses import dataclass

from fairlead.model.allocation import Certificate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    tenant_table,
    within_quotas,
)
from fairlead.solve.oef.equal_levels import solve_equal
from fairlead.solve.recent import RecentSolutions


@dataclass(frozen=True)
class Oef(TenantPolicy):
    """Give all tenants the same normalised throughput per weight, as much as possible.

    No tenant gains by reporting a speedup above its true one. A tenant that cannot use the
    exhausted accelerators gets more of the others, until no usable device is left. The
    objective is the least throughput per unit of weight.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        return self.divide_warm(snap, WarmStart())

    def divide_warm(self, snap: Snapshot, warm: WarmStart) -> TenantDivision:
        """Return the same; an input that comes again is not solved again."""
        table = tenant_table(snap, warm)
        recent = warm.state(self, lambda: RecentSolutions(solve_equal))
        solution = recent.solve(table.gain, table.weight, table.capacity)

        def prove() -> Certificate:
            return solution.certificate

        def worth() -> float:
            return solution.least

        return within_quotas(snap, TenantDivision(table, solution.amount, worth, prove))
