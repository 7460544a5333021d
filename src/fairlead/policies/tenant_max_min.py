"""Max-min fairness over tenants, relative to an equal split: Gavel as OEF models it (§2.4)."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    TenantTable,
    tenant_table,
    within_quotas,
)
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.oef.equal_levels import solve_equal
from fairlead.solve.recent import RecentSolutions
from fairlead.solve.solver import solve_max_min


@dataclass(frozen=True)
class TenantMaxMin(TenantPolicy):
    """Maximise the least ratio of a tenant's throughput to its equal split, then the next least.

    The equal split is the tenant's part by weight of every accelerator. ``capped`` lets a
    tenant hold at most one device per unit of weight, as if it were one job. A tenant's jobs of
    different workloads count as several tenants that share its weight.
    """

    capped: bool = False
    """let a tenant hold at most one device per unit of weight, as if it were one job"""

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        return self.divide_warm(snap, WarmStart())

    def divide_warm(self, snap: Snapshot, warm: WarmStart) -> TenantDivision:
        """Return the same; an input that comes again is not solved again."""
        table = tenant_table(snap, warm)
        split = table.capacity / max(float(table.weight.sum()), 1e-300)
        whole = (table.gain * split).sum(axis=1, keepdims=True)
        gain = np.divide(table.gain, whole, out=np.zeros_like(table.gain), where=whole > 0)
        if self.capped:
            problem = MaxMinProblem(gain, table.weight**0, table.weight, table.capacity)
            return within_quotas(snap, _capped(table, problem))
        recent = warm.state(self, lambda: RecentSolutions(solve_equal))
        solution = recent.solve(gain, table.weight, table.capacity)

        def prove() -> Certificate:
            return solution.certificate

        def worth() -> float:
            return solution.least

        return within_quotas(snap, TenantDivision(table, solution.amount, worth, prove))


def _capped(table: TenantTable, problem: MaxMinProblem) -> TenantDivision:
    solution = solve_max_min(problem)

    def prove() -> Certificate:
        return solution.certificate

    def worth() -> float:
        return float(solution.level[solution.level > 0].min(initial=np.inf))

    return TenantDivision(table, solution.share * table.weight[:, None], worth, prove)
