"""Routes for tenants: weights, quotas, shares and their explanation."""

from fastapi import APIRouter

from fairlead.model.errors import InputError
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    NotFoundError,
)
from fairlead.server.api import schemas as msg
from fairlead.server.api.tenant_explanation import explain_tenant
from fairlead.server.api.views import share_views

tenants = APIRouter(prefix="/v1", tags=["tenants"])


@tenants.get("/tenants")
async def list_tenants(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.TenantView]:
    """List the tenants."""
    return [
        msg.TenantView.of(tenant) for tenant in live.tenants.listed if principal.can_see(tenant.id)
    ]


@tenants.put("/tenants/{tenant_id:path}")
async def set_tenant(
    tenant_id: str, new: msg.TenantView, live: LiveDependency, principal: CurrentPrincipal
) -> msg.TenantView:
    """Add a tenant or change its weight, parent and quotas; for admins."""
    principal.require("admin")
    if new.id != tenant_id:
        problem = f"{new.id!r} differs from the path"
        raise InputError(problem, fix=f"expected {tenant_id!r}", field="id")
    await live.tenants.set(new.to_tenant(), principal.actor)
    return new


@tenants.delete("/tenants/{tenant_id:path}", status_code=204)
async def remove_tenant(tenant_id: str, live: LiveDependency, principal: CurrentPrincipal) -> None:
    """Remove a tenant; refused while it has jobs that have not ended; for admins."""
    principal.require("admin")
    if all(tenant.id != tenant_id for tenant in live.tenants.listed):
        raise NotFoundError(f"no tenant {tenant_id!r}")
    await live.tenants.remove(tenant_id, principal.actor)


@tenants.get("/tenants/{tenant_id:path}/explain")
async def explain(
    tenant_id: str, server: ContextDependency, principal: CurrentPrincipal
) -> msg.TenantExplanation:
    """Explain the devices that a tenant holds: entitlement, quota, jobs, limiting conditions."""
    if principal.can_see(tenant_id):
        for tenant in server.live.tenants.listed:
            if tenant.id == tenant_id:
                policy = server.live.policy.config.policy
                return explain_tenant(server.live, tenant, policy, principal.can_see)
    raise NotFoundError(f"no tenant {tenant_id!r}")


@tenants.get("/shares")
async def shares(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.ShareView]:
    """Show the entitled and received shares of tenants."""
    return [
        view
        for view in share_views(live)
        if principal.can_see(view.tenant) and view.tenant not in live.tenants.removed
    ]
