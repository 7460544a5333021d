"""Tenants: who they are and what they have."""

from fastapi import APIRouter

from fairlead.model.errors import InputError
from fairlead.model.job import Tenant
from fairlead.server.access.authorization import LiveDependency, Who
from fairlead.server.api import schemas as msg
from fairlead.server.api.views import share_views

tenants = APIRouter(prefix="/v1", tags=["tenants"])


@tenants.get("/tenants")
async def list_tenants(live: LiveDependency, who: Who) -> list[msg.TenantView]:
    """List the tenants."""
    return [
        msg.TenantView(
            id=t.id,
            weight=t.weight,
            parent=t.parent,
            inner=t.inner,  # type: ignore[arg-type]  # one of the two
            priority=t.priority,
            guarantee=dict(t.guarantee),
            guarantee_in=t.guarantee_in,  # type: ignore[arg-type]  # one of the two
            limit=dict(t.limit),
        )
        for t in live.scheduler.jobs.tenants
        if who.can_see(t.id)
    ]


@tenants.put("/tenants/{tenant_id:path}")
async def set_tenant(
    tenant_id: str, new: msg.TenantView, live: LiveDependency, who: Who
) -> msg.TenantView:
    """Add a tenant or change its weight, parent, quotas; for admins."""
    who.require("admin")
    if new.id != tenant_id:
        raise InputError(f"{new.id!r} is not {tenant_id!r}", fix="give one id", field="id")
    await live.set_tenant(Tenant(**new.model_dump()), who.name)
    return new


@tenants.get("/shares")
async def shares(live: LiveDependency, who: Who) -> list[msg.ShareView]:
    """Show what tenants are entitled to and what they have."""
    return [view for view in share_views(live) if who.can_see(view.tenant)]
