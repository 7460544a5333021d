"""Explanation of the devices that a tenant holds: its entitlement, quota and jobs."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fairlead.core.queries import TenantStatus
from fairlead.live.driver import Live
from fairlead.model.capabilities import capabilities_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.api.schemas import TenantExplanation
from fairlead.server.api.views import job_row

_MAX_NAMED = 5
"""maximum number of jobs or tenants that the text names"""


class _Unended(NamedTuple):
    """Jobs of a tenant that have not ended, by their public state."""

    running: list[str]
    queued: list[str]
    suspended: list[str]
    held: Counter[str]
    """accelerator → devices"""


def explain_tenant(
    live: Live, tenant: Tenant, policy: str, can_see: Callable[[str], bool]
) -> TenantExplanation:
    """Return the reasons for the devices that a tenant holds now.

    Other tenants are named to those who can see them.
    """
    statuses = {one.tenant.id: one for one in live.queries.tenant_statuses(live.clock.now())}
    inside = _inside(tenant, live.tenants.listed)
    entitled = sum(one.entitled for name, one in statuses.items() if name in inside)
    status = statuses.get(tenant.id, TenantStatus(tenant, 0, 0.0, 0, 0.0))
    status = status._replace(entitled=entitled)
    outside = [one for name, one in statuses.items() if name not in inside]
    jobs = _unended_jobs(live, inside)
    total = max(sum(count for count, _ in live.queries.device_counts().values()), 1)
    share = sum(jobs.held.values()) / total
    limits = [
        *_quota_limits(tenant, jobs),
        *_other_limits(live, status, jobs, outside, policy, share, can_see),
    ]
    return TenantExplanation(
        tenant=tenant.id,
        entitled=status.entitled,
        received=share,
        devices=dict(jobs.held),
        running=len(jobs.running),
        queued=len(jobs.queued),
        suspended=len(jobs.suspended),
        limits=limits,
        text=[_summary(tenant, status, jobs, share), _quota_text(tenant), *limits],
    )


def _inside(tenant: Tenant, tenants: Sequence[Tenant]) -> set[str]:
    """Return the ids of a tenant and of all tenants inside it."""
    ids, more = {tenant.id}, {tenant.id}
    while more:
        more = {one.id for one in tenants if one.parent in more} - ids
        ids |= more
    return ids


def _unended_jobs(live: Live, tenants: Collection[str]) -> _Unended:
    unended = _Unended([], [], [], Counter())
    for number in live.queries.unended_jobs():
        if live.queries.job(number).tenant not in tenants:
            continue
        row = job_row(live, number)
        getattr(unended, row["state"]).append(row["id"])
        unended.held.update(row["accelerators_held"])
    return unended


def _summary(tenant: Tenant, status: TenantStatus, jobs: _Unended, share: float) -> str:
    held = ", ".join(f"{count} {name}" for name, count in jobs.held.items()) or "no devices"
    return (
        f"Tenant {tenant.id} holds {held}: {share:.1%} of the cluster. With weight"
        f" {tenant.weight:g} it is entitled to {status.entitled:.1%} among the tenants with jobs."
        f" Its jobs: {len(jobs.running)} running, {len(jobs.queued)} queued,"
        f" {len(jobs.suspended)} suspended."
    )


def _quota_text(tenant: Tenant) -> str:
    parts = [f"{count:g} {name} guaranteed" for name, count in tenant.guarantee.items()]
    parts += [f"at most {count:g} {name}" for name, count in tenant.limit.items()]
    caps = {
        "unended jobs": tenant.max_jobs,
        "priority": tenant.max_priority,
        "weight": tenant.max_weight,
    }
    parts += [f"{name} up to {cap:g}" for name, cap in caps.items() if cap is not None]
    return f"Quota and caps: {', '.join(parts)}." if parts else "It has neither quota nor caps."


def _quota_limits(tenant: Tenant, jobs: _Unended) -> list[str]:
    reached = [
        f"It has reached its limit of {limit:g} {name}."
        for name, limit in tenant.limit.items()
        if jobs.held[name] >= limit
    ]
    count = len(jobs.running) + len(jobs.queued) + len(jobs.suspended)
    if tenant.max_jobs is not None and count >= tenant.max_jobs:
        reached.append(f"It has {count} unended jobs: its own tokens can submit no more.")
    return reached


def _other_limits(
    live: Live,
    status: TenantStatus,
    jobs: _Unended,
    statuses: Collection[TenantStatus],
    policy: str,
    share: float,
    can_see: Callable[[str], bool],
) -> list[str]:
    """Return the conditions besides its own quota."""
    if not jobs.queued:
        return ["No job of it waits for devices: more jobs or larger gangs would get more."]
    limits = []
    others = [one for one in statuses if one.jobs]
    first = [one.tenant.id for one in others if one.tenant.priority > status.tenant.priority]
    if first:
        limits.append(
            f"Tenants with a higher priority are served first: {_tenants(first, can_see)}."
        )
    if not capabilities_of(live.scheduler.mechanism).divides_among_tenants:
        limits.append(f"Policy {policy} divides devices among jobs and ignores tenants' weights.")
    if others and share >= status.entitled:
        names = _tenants([one.tenant.id for one in others], can_see)
        limits.append(f"It holds its entitlement; the rest belongs to tenants with jobs: {names}.")
    limits.append(
        f"Waiting jobs: {_named(jobs.queued)}. `fairlead explain {jobs.queued[0]}` explains one."
    )
    return limits


def _tenants(names: Sequence[str], can_see: Callable[[str], bool]) -> str:
    """Return the names of tenants, and the number of those that the reader may not see."""
    seen = [name for name in names if can_see(name)]
    hidden = len(names) - len(seen)
    others = [f"{hidden} other{'s' if hidden > 1 else ''}"] if hidden else []
    return " and ".join([*([_named(seen)] if seen else []), *others])


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
