"""Changes of tenants, checked against the permanent devices; caps of tenants on their jobs."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.live.clock import Clock
from fairlead.live.inputs.inbox import Inbox
from fairlead.model import events as ev
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.validation import check_tenants
from fairlead.store import Audit, Change, Put, Remove, Store, User
from fairlead.store.audit import changed_values, name_of

_REMOVED = "removed tenant"
"""collection of the documents of removed tenants"""


class TenantController:
    """Turns requests about tenants into events.

    The scheduler knows a tenant forever, since ended jobs belong to it. A removed tenant has no
    settings and is not listed until it is set again or a job of it is admitted.
    """

    def __init__(
        self, scheduler: Scheduler[Any], store: Store, clock: Clock, inbox: Inbox
    ) -> None:
        self._scheduler, self._clock, self._inbox = scheduler, clock, inbox
        self.removed: set[str] = set(store.documents(_REMOVED))

    @property
    def listed(self) -> list[Tenant]:
        """The tenants that were not removed."""
        return [one for one in self._scheduler.jobs.tenants if one.id not in self.removed]

    async def set(self, tenant: Tenant, user: User) -> None:
        """Add a tenant or replace the tenant with the same id."""
        values: dict[str, Any] = {}

        def make(at: float) -> Sequence[ev.Event]:
            listed = {other.id: other for other in self.listed}
            old = listed.get(tenant.id)
            if old is None or old.parent != tenant.parent:
                _require_parent(tenant, listed)
            check_tenant_change(self._scheduler, tenant)
            values.update(changed_values(old, tenant))
            return [ev.TenantChanged(at, tenant)]

        audit = Audit(self._clock.now(), user, "tenant", tenant.id, changes=values)
        await self._inbox.submit(make, lambda: [audit, *self._listed_again(tenant.id)])

    async def remove(self, tenant_id: str, user: User) -> None:
        """Remove a tenant without jobs; refuse while one has not ended, or a tenant is inside."""
        audit = Audit(self._clock.now(), user, "remove tenant", tenant_id)

        def make(at: float) -> Sequence[ev.Event]:
            queries = Queries(self._scheduler)
            jobs = [queries.job(number) for number in queries.unended_jobs()]
            if count := sum(job.tenant == tenant_id for job in jobs):
                raise ProtocolError(
                    f"tenant {tenant_id!r} has {_unended_text(count)}: cancel or await them first"
                )
            inside = [one.id for one in self.listed if one.parent == tenant_id]
            if inside:
                raise ProtocolError(
                    f"tenant {tenant_id!r} is the parent of {', '.join(inside)}: give them another"
                    " parent first"
                )
            return [ev.TenantChanged(at, Tenant(tenant_id))]

        def changes() -> Sequence[Change]:
            self.removed.add(tenant_id)
            return [audit, Put(_REMOVED, tenant_id, name_of(user))]

        await self._inbox.submit(make, changes)

    async def list_again(self, tenant_id: str) -> None:
        """List a removed tenant again, once it has a job."""
        if tenant_id in self.removed:
            await self._inbox.submit(lambda _: [], lambda: self._listed_again(tenant_id))

    def _listed_again(self, tenant_id: str) -> Sequence[Change]:
        if tenant_id not in self.removed:
            return []
        self.removed.discard(tenant_id)
        return [Remove(_REMOVED, tenant_id)]


def _require_parent(tenant: Tenant, listed: Collection[str]) -> None:
    """Raise InputError if the parent is no tenant: a typing error would change all shares."""
    if tenant.parent is not None and tenant.parent not in {*listed, tenant.id}:
        raise InputError(
            f"no tenant {tenant.parent!r}",
            fix="expected a tenant, see `fairlead tenants`, or none; set the parent first",
            field="parent",
        )


def check_tenant_change(scheduler: Scheduler[Any], tenant: Tenant) -> None:
    """Raise InputError unless tenants stay a tree whose quotas can be honoured after a change.

    New guarantees must fit the devices that have not been removed. Guarantees from before a node
    was removed may stay, so that its removal does not block other changes.
    """
    known = {old.id: old for old in scheduler.jobs.tenants}
    before = known[tenant.id].guarantee if tenant.id in known else {}
    raised = {name for name, count in tenant.guarantee.items() if count > before.get(name, 0.0)}
    permanent = scheduler.nodes.permanent_by_name
    devices = {
        name: permanent.get(name, 0) if name in raised else count
        for name, count in scheduler.cluster.count_by_name().items()
    }
    check_tenants([*({**known, tenant.id: tenant}).values()], devices)


class Entitlements:
    """Caps of tenants on the jobs of one request, which count from the first to the last."""

    def __init__(self, scheduler: Scheduler[Any], *, is_admin: bool) -> None:
        self._scheduler, self._is_admin = scheduler, is_admin
        self._unended: Counter[str] | None = None
        """tenant → jobs that have not ended, with those of the request"""

    def admit(self, job: Job) -> Job:
        """Return a submitted job within the caps of its tenant; InputError if it exceeds one.

        An admin may exceed them; a weight or priority that an admin chooses counts against the
        jobs of all tenants.
        """
        if self._is_admin:
            return replace(job, across_tenants=(job.weight, job.priority) != (1.0, 0))
        tenant = _tenant(self._scheduler, job.tenant)
        _check_numbers(tenant, job)
        if tenant.max_jobs is not None:
            self._count(tenant, tenant.max_jobs)
        return job

    def _count(self, tenant: Tenant, max_jobs: int) -> None:
        if self._unended is None:
            queries = Queries(self._scheduler)
            self._unended = Counter(queries.job(n).tenant for n in queries.unended_jobs())
        unended = self._unended[tenant.id]
        if unended >= max_jobs:
            raise InputError(
                f"{tenant.id!r} has {_unended_text(unended)}, its cap is {max_jobs}",
                fix="wait for a job to end, cancel one, or ask an admin to raise max_jobs",
                field="tenant",
            )
        self._unended[tenant.id] += 1


def changed_job(scheduler: Scheduler[Any], before: Job, job: Job, *, is_admin: bool) -> Job:
    """Return a changed job within the caps of its tenant; raise InputError if it exceeds one.

    Numbers that an admin chose keep their scope until someone else changes them.
    """
    if (job.weight, job.priority) == (before.weight, before.priority):
        return job
    if is_admin:
        return replace(job, across_tenants=(job.weight, job.priority) != (1.0, 0))
    _check_numbers(_tenant(scheduler, job.tenant), job)
    return replace(job, across_tenants=False)


def _check_numbers(tenant: Tenant, job: Job) -> None:
    caps = (
        ("priority", job.priority, tenant.max_priority),
        ("weight", job.weight, tenant.max_weight),
    )
    for name, value, cap in caps:
        if cap is not None and value > cap:
            raise InputError(
                f"{value:g} exceeds the cap of tenant {tenant.id!r}",
                fix=f"expected at most {cap:g}, which only an admin may exceed",
                field=name,
            )


def _tenant(scheduler: Scheduler[Any], tenant_id: str) -> Tenant:
    tenants = scheduler.jobs.tenants
    return next((tenant for tenant in tenants if tenant.id == tenant_id), Tenant(tenant_id))


def _unended_text(count: int) -> str:
    return "1 job that has not ended" if count == 1 else f"{count} jobs that have not ended"
