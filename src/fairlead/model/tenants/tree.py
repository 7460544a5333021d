"""The tenant tree: ancestors, children, and what follows from them for weights and limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import InputError
from fairlead.model.tenants.tenant import Tenant

ROOT = -1
"""in place of a tenant's index: the parent of top-level tenants"""


@dataclass(frozen=True, eq=False)
class TenantTree:
    """Tenants by index and the relations among them.

    A parent that is not listed counts as the root.
    """

    tenants: Sequence[Tenant]

    @cached_property
    def index(self) -> dict[str, int]:
        """Tenant id → index."""
        return {tenant.id: i for i, tenant in enumerate(self.tenants)}

    @cached_property
    def parent(self) -> list[int]:
        """Tenants → index of the parent; ROOT for top-level tenants."""
        index = self.index
        return [index.get(tenant.parent or "", ROOT) for tenant in self.tenants]

    def ancestors(self, tenant: int) -> list[int]:
        """Return a tenant and all tenants around it, innermost first."""
        line = [tenant]
        while (parent := self.parent[line[-1]]) != ROOT:
            line.append(parent)
        return line

    def inside(self, outer: Sequence[int]) -> BoolArray:
        """Return the given tenants × all tenants → the second is the first or inside it."""
        inside = np.zeros((len(outer), len(self.tenants)), dtype=bool)
        rows: dict[int, list[int]] = {}
        for row, tenant in enumerate(outer):
            rows.setdefault(tenant, []).append(row)
        for i in range(len(self.tenants)):
            for at in self.ancestors(i):
                inside[rows.get(at, []), i] = True
        return inside

    def descendants(self, outer: str) -> set[str]:
        """Return the ids of a tenant, listed or not, and of all tenants inside it."""
        inside = {outer}
        for i, tenant in enumerate(self.tenants):
            line = [self.tenants[at] for at in self.ancestors(i)]
            if any(outer in (each.id, each.parent) for each in line):
                inside.add(tenant.id)
        return inside

    def entitlements(self, active: BoolArray) -> FloatArray:
        """Return tenants → weight; tenants inside another one divide its weight among them.

        Only tenants with jobs (``active``), or around such tenants, count. The jobs that a tenant
        has beside the tenants inside it count as one more tenant, of weight 1. ``active`` may
        be longer than the list of tenants; the weight of those not listed is 1.
        """
        tenants, parent = self.tenants, self.parent
        if not any(tenant.parent is not None for tenant in tenants):
            weight = np.ones(len(active))
            weight[: len(tenants)] = [tenant.weight for tenant in tenants]
            return np.where(active, weight, 0.0)
        counts = active.copy()
        for i in active.nonzero()[0].tolist():
            at = parent[i]
            while at != ROOT and not counts[at]:
                counts[at] = True
                at = parent[at]
        children: dict[int, list[int]] = {}
        for i in counts.nonzero()[0].tolist():
            children.setdefault(parent[i], []).append(i)
        weight = np.zeros(len(active))
        divided = [(i, tenants[i].weight) for i in children.get(ROOT, [])]
        for i, whole in divided:
            inner = children.get(i, [])
            total = sum(sorted(tenants[c].weight for c in inner)) + float(active[i])
            weight[i] = whole / total if active[i] else 0.0
            divided += [(c, whole * tenants[c].weight / total) for c in inner]
        return weight

    def entitled_shares(self) -> FloatArray:
        """Return tenants → entitled share of the cluster if all tenants had jobs.

        Siblings divide the share of their parent by weight; siblings have the same parent id,
        listed or not.
        """
        siblings: dict[str | None, float] = {}
        for tenant in self.tenants:
            siblings[tenant.parent] = siblings.get(tenant.parent, 0.0) + tenant.weight
        share = {ROOT: 1.0}
        for i in range(len(self.tenants)):
            for at in reversed(self.ancestors(i)):
                if at not in share:
                    tenant = self.tenants[at]
                    own = tenant.weight / siblings[tenant.parent]
                    share[at] = own * share[self.parent[at]]
        return np.array([share[i] for i in range(len(self.tenants))])

    def limits(self, accelerators: Sequence[str]) -> FloatArray:
        """Return tenants × accelerators → whole devices it may hold, infinite without a limit.

        A tenant may hold no more than any tenant around it.
        """
        own = np.array(
            [[whole_devices(t.limit.get(a, math.inf)) for a in accelerators] for t in self.tenants]
        ).reshape(len(self.tenants), len(accelerators))
        return np.array([own[self.ancestors(i)].min(axis=0) for i in range(len(own))])

    def check_acyclic(self) -> None:
        """Raise InputError if a tenant is inside itself."""
        safe = {ROOT}
        for start in range(len(self.tenants)):
            path: dict[int, None] = {}
            at = start
            while at not in safe:
                if at in path:
                    raise InputError(
                        f"a cycle: tenant {self.tenants[at].id!r} is inside itself",
                        fix="expected a tree: remove one parent of the cycle",
                        field="tenants.parent",
                    )
                path[at] = None
                at = self.parent[at]
            safe.update(path)


def whole_devices(limit: float) -> float:
    """Return a limit in whole devices, rounded up."""
    return limit if math.isinf(limit) else math.ceil(limit - 1e-9)
