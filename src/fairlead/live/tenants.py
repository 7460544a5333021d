"""Whether a tenant may be changed as an operator asks, given what there is to promise."""

from typing import Any

from fairlead.core import Scheduler
from fairlead.model.job import Tenant, check_tenants


def check_tenant_change(scheduler: Scheduler[Any], tenant: Tenant) -> None:
    """Raise InputError unless tenants stay a tree whose quotas can be kept after a change.

    What is promised anew must fit the devices that have not been removed. What was promised
    before a node was removed may stay, so that its loss stands in nobody else's way.
    """
    known = {one.id: one for one in scheduler.jobs.tenants}
    before = known[tenant.id].guarantee if tenant.id in known else {}
    raised = {kind for kind, count in tenant.guarantee.items() if count > before.get(kind, 0.0)}
    lasting = scheduler.nodes.permanent_by_name
    devices = {
        kind: lasting.get(kind, 0) if kind in raised else count
        for kind, count in scheduler.cluster.count_by_name().items()
    }
    check_tenants([*({**known, tenant.id: tenant}).values()], devices)
