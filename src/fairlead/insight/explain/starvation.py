"""Causes for which a job gets no devices: priorities, weights, guarantees and limits of others."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fairlead.insight.explain.binding_constraints import Binding
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.rules.quotas import Quotas

STARVED = 0.05
"""fraction of its gang's devices below which a job counts as starved"""
_MUCH_GREATER = 10.0
"""ratio of weights that can starve a job"""
_SOME = 1e-6


CanSee = Callable[[str], bool]
"""whether the reader may see the jobs of a tenant"""


def everything(tenant: str) -> bool:
    """Return that the reader may see the jobs of every tenant."""
    del tenant
    return True


def devices_now(snap: Snapshot) -> FloatArray:
    """Return jobs × accelerators → devices that jobs hold now."""
    held = np.zeros((len(snap.job), len(snap.capacity)))
    lane, device = (snap.holds >= 0).nonzero()
    np.add.at(held, (snap.holds[lane, device], snap.cluster.accelerator_of[device]), 1.0)
    return held


def starvation_causes(
    snap: Snapshot, row: int, held: FloatArray, can_see: CanSee = everything
) -> Iterator[Binding]:
    """Yield the causes for which a job holds next to nothing; none if it holds devices.

    ``held`` is jobs × accelerators → devices, on average or now. Tenants that the reader may not
    see, and their jobs, are not named.
    """
    if held[row].sum() >= STARVED * snap.gang[row]:
        return
    able: BoolArray = (snap.speed[row] > 0) & (snap.gang_on[row] <= snap.capacity)
    used = held[:, able].sum(axis=1)
    others = np.flatnonzero(used > _SOME)
    others = others[others != row]
    others = others[np.argsort(-used[others], kind="stable")]
    names = Names(snap, can_see)
    yield from _higher_priorities(snap, row, others, names)
    yield from _greater_weights(snap, row, others, names)
    yield from _guarantees_of_others(snap, row, able, names)
    tree = TenantTree(snap.tenants)
    # Explanations name the limit of the job's own tenant among its binding constraints.
    yield from reached_limits(snap, held, tree, tree.ancestors(int(snap.tenant[row]))[1:])


class Names:
    """Names of jobs and tenants, as far as the reader may see them."""

    def __init__(self, snap: Snapshot, can_see: CanSee) -> None:
        self._snap, self._can_see = snap, can_see

    def tenant(self, index: int) -> str:
        """Return a tenant's id if the reader may see it."""
        name = self._snap.tenants[index].id
        return name if self._can_see(name) else "another tenant"

    def job(self, row: int) -> str:
        """Return a job's id and tenant if the reader may see it."""
        owner = int(self._snap.tenant[row])
        if not self._can_see(self._snap.tenants[owner].id):
            return "a job of another tenant"
        return f"{self._snap.ids[int(self._snap.job[row])]} of tenant {self.tenant(owner)}"


def _higher_priorities(
    snap: Snapshot, row: int, others: IntArray, names: Names
) -> Iterator[Binding]:
    of_tenant = np.array([tenant.priority for tenant in snap.tenants] or [0])
    mine, theirs = of_tenant[snap.tenant[row]], of_tenant[snap.tenant[others]]
    tenants = np.unique(snap.tenant[others[theirs > mine]])
    if len(tenants):
        named = [f"{names.tenant(t)} ({of_tenant[t]})" for t in tenants.tolist()]
        why = f"tenants of a higher priority precede it ({int(mine)}): {first_of(named)}"
        yield Binding("priority", why)
    level = theirs == mine
    ahead = snap.precedence[others] > snap.precedence[row]
    siblings = snap.tenant[others] == snap.tenant[row]
    ahead |= siblings & (snap.priority[others] > snap.priority[row])
    first = others[level & ahead]
    if len(first):
        own = int(snap.priority[row])
        named = [f"{names.job(r)}, priority {int(snap.priority[r])}" for r in first.tolist()]
        why = f"jobs of a higher priority precede it ({own}): {first_of(named)}"
        yield Binding("priority", why)


def _greater_weights(
    snap: Snapshot, row: int, others: IntArray, names: Names
) -> Iterator[Binding]:
    own = float(snap.weight[row])
    heavy = others[snap.weight[others] >= _MUCH_GREATER * own]
    if len(heavy):
        named = [f"{names.job(r)}, weight {snap.weight[r]:.3g}" for r in heavy.tolist()]
        yield Binding("weight", f"jobs of a greater weight than its {own:.3g}: {first_of(named)}")


def _guarantees_of_others(
    snap: Snapshot, row: int, able: BoolArray, names: Names
) -> Iterator[Binding]:
    if not any(tenant.guarantee for tenant in snap.tenants):
        return
    quotas = Quotas(snap)
    tenant = snap.tenant[row]
    foreign = ~quotas.inside[:, tenant] & (quotas.inside[:, snap.tenant].any(axis=1))
    for j in np.flatnonzero(able).tolist():
        kept = quotas.guarantee[foreign, j]
        if kept.sum() > snap.capacity[j] - snap.gang_on[row, min(j, snap.gang_on.shape[1] - 1)]:
            name = snap.cluster.accelerators[j]
            index = TenantTree(snap.tenants).index
            holders = [h.id for h, f in zip(quotas.holders, foreign, strict=True) if f]
            some = [h for h, count in zip(holders, kept.tolist(), strict=True) if count > 0]
            named = list(dict.fromkeys(names.tenant(index[h]) for h in some))
            kept_of = f"{kept.sum():g} of {snap.capacity[j]} {name}"
            why = f"{kept_of} are guaranteed to {first_of(named)}"
            yield Binding("guarantee", why, name)


def reached_limits(
    snap: Snapshot, held: FloatArray, tree: TenantTree, tenants: Sequence[int]
) -> Iterator[Binding]:
    """Yield the limits that these tenants have reached, together with the tenants inside them."""
    for outer in tenants:
        limit = snap.tenants[outer].limit
        inside = tree.inside([outer])[0][snap.tenant]
        for j, name in enumerate(snap.cluster.accelerators):
            if name in limit and held[inside, j].sum() >= limit[name] - _SOME:
                why = f"tenant {snap.tenants[outer].id} has reached its limit of {name}"
                yield Binding("quota", why, name)


def first_of(named: Sequence[str], count: int = 3) -> str:
    """Return the first names, and the number of the others."""
    more = len(named) - count
    return "; ".join(named[:count]) + (f"; and {more} more" if more > 0 else "")
