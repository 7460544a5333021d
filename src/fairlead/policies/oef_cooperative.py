"""OEF for cooperating tenants: the greatest envy-free total (OEF §4.2.2, program 10)."""

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
from fairlead.solve.oef.envy_free import solve_envy_free
from fairlead.solve.recent import RecentSolutions


@dataclass(frozen=True)
class OefCooperative(TenantPolicy):
    """Maximise the total normalised throughput such that no tenant prefers another's devices.

    Devices are compared per unit of weight. Every tenant gets at least the throughput of its
    proportional part of every accelerator. Both hold for tenants whose jobs have one workload;
    several count as several tenants that share its weight. The objective is the total.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        return self.divide_warm(snap, WarmStart())

    def divide_warm(self, snap: Snapshot, warm: WarmStart) -> TenantDivision:
        """Return the same; an input that comes again is not solved again."""
        table = tenant_table(snap, warm)
        recent = warm.state(self, lambda: RecentSolutions(solve_envy_free))
        solution = recent.solve(table.gain, table.weight, table.capacity)

        def prove() -> Certificate:
            return solution.certificate

        def worth() -> float:
            return solution.total

        return within_quotas(snap, TenantDivision(table, solution.amount, worth, prove))
