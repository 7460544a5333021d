"""Checks of tenant changes against the permanent devices."""

from typing import Any

from fairlead.core import Scheduler
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
