"""Validation of tenants against each other and the cluster."""

from collections.abc import Mapping, Sequence

from fairlead.model.errors import InputError
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree


def check_tenants(tenants: Sequence[Tenant], devices: Mapping[str, int]) -> None:
    """Raise InputError unless tenants form a tree and their quotas fit the cluster.

    Quotas must name accelerators of the cluster, and all guarantees together must not exceed
    its ``devices``.
    """
    TenantTree(tenants).check_acyclic()
    guaranteed = dict.fromkeys(devices, 0.0)
    guarantees = {tenant.id: tenant.guarantee for tenant in tenants}
    for tenant in tenants:
        for name in (*tenant.guarantee, *tenant.limit):
            if name not in devices:
                raise InputError(
                    f"quota of tenant {tenant.id!r} for unknown accelerator {name!r}",
                    fix=f"expected one of {', '.join(devices)}",
                    field="tenants",
                )
        of_parent = guarantees.get(tenant.parent or "", {})
        for name, count in tenant.guarantee.items():
            if name not in of_parent:  # the parent's guarantee already includes it
                guaranteed[name] += count
    for name, count in guaranteed.items():
        if count > devices[name]:
            raise InputError(
                f"{count:g} {name} guaranteed in all, the cluster has {devices[name]}",
                fix="lower the guarantees or add devices",
                field="tenants.guarantee",
            )
