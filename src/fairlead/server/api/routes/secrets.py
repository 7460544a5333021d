"""Routes for the secrets of tenants: set, list, remove. No response holds a value."""

from typing import Annotated

from fastapi import APIRouter, Query

from fairlead.model.job import DEFAULT_TENANT
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    NotFoundError,
)
from fairlead.server.access.secrets import JobSecrets, StoredSecret
from fairlead.server.access.tokens import Principal
from fairlead.server.api import schemas as msg
from fairlead.store import Audit

secrets = APIRouter(prefix="/v1/secrets", tags=["secrets"])

TenantName = Annotated[str | None, Query(min_length=1, max_length=128)]


@secrets.put("/{name}")
async def set_secret(
    name: str, new: msg.NewSecret, server: ContextDependency, principal: CurrentPrincipal
) -> msg.SecretView:
    """Store a secret, or replace its value; leases that start later get the new value."""
    tenant = _require_tenant(principal, new.tenant)
    at = server.live.clock.now()
    secret, changes = server.secrets.set(tenant, name, new.value, at)
    audit = Audit(at, principal.actor, "secret.set", f"{tenant}/{name}")
    await server.live.write([*changes, audit])
    return _view(server.secrets, secret)


@secrets.get("")
async def list_secrets(
    server: ContextDependency, principal: CurrentPrincipal, tenant: TenantName = None
) -> list[msg.SecretView]:
    """List the secrets of a tenant without their values; for admins, of all tenants."""
    principal.require("admin", "tenant")
    if principal.role == "tenant" or tenant is not None:
        tenant = _require_tenant(principal, tenant)
    return [
        _view(server.secrets, secret)
        for secret in server.secrets.list()
        if tenant in (None, secret.tenant)
    ]


@secrets.delete("/{name}", status_code=204)
async def remove_secret(
    name: str, server: ContextDependency, principal: CurrentPrincipal, tenant: TenantName = None
) -> None:
    """Remove a secret; running jobs keep its value, leases that need it fail from now on."""
    owner = _require_tenant(principal, tenant)
    changes = server.secrets.remove(owner, name)
    if not changes:
        raise NotFoundError(f"tenant {owner!r} has no secret {name!r}")
    at = server.live.clock.now()
    audit = Audit(at, principal.actor, "secret.remove", f"{owner}/{name}")
    await server.live.write([*changes, audit])


def _require_tenant(principal: Principal, tenant: str | None) -> str:
    """Return the tenant of a request; raise AuthError if the principal may not act for it."""
    owner = tenant or principal.tenant or DEFAULT_TENANT
    principal.require_tenant(owner)
    return owner


def _view(stored: JobSecrets, secret: StoredSecret) -> msg.SecretView:
    return msg.SecretView(
        name=secret.name,
        tenant=secret.tenant,
        created_at=secret.created_at,
        changed_at=secret.changed_at,
        readable=stored.is_readable(secret),
    )
