"""Checks of tenant changes against the permanent devices, and of jobs against tenants' caps."""

from dataclasses import replace
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.validation import check_tenants


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


def entitled_job(scheduler: Scheduler[Any], job: Job, *, is_admin: bool) -> Job:
    """Return a submitted job within the caps of its tenant; raise InputError if it exceeds one.

    An admin may exceed them; a weight or priority that an admin chooses counts against the jobs
    of all tenants.
    """
    if is_admin:
        return replace(job, across_tenants=(job.weight, job.priority) != (1.0, 0))
    tenant = _tenant(scheduler, job.tenant)
    _check_numbers(tenant, job)
    if tenant.max_jobs is not None:
        queries = Queries(scheduler)
        unended = [n for n in queries.unended_jobs() if queries.job(n).tenant == tenant.id]
        if len(unended) >= tenant.max_jobs:
            raise InputError(
                f"tenant {tenant.id!r} has {len(unended)} jobs that have not ended, its cap is"
                f" {tenant.max_jobs}",
                fix="wait for a job to end, cancel one, or ask an admin to raise max_jobs",
                field="max_jobs",
            )
    return job


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
