"""Routes for tenants: weights, quotas and shares."""

from fastapi import APIRouter

from fairlead.model.errors import InputError
from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency
from fairlead.server.api import schemas as msg
from fairlead.server.api.views import share_views

tenants = APIRouter(prefix="/v1", tags=["tenants"])


@tenants.get("/tenants")
async def list_tenants(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.TenantView]:
    """List the tenants."""
    return [
        msg.TenantView.of(tenant)
        for tenant in live.queries.tenants
        if principal.can_see(tenant.id)
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
    await live.set_tenant(new.to_tenant(), principal.actor)
    return new


@tenants.get("/shares")
async def shares(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.ShareView]:
    """Show the entitled and received shares of tenants."""
    return [view for view in share_views(live) if principal.can_see(view.tenant)]
