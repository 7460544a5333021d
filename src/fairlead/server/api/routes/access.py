"""Routes for access: tokens and the audit trail."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from fairlead.model.errors import InputError, ProtocolError
from fairlead.server.access.authorization import (
    CurrentPrincipal,
    LiveDependency,
    NotFoundError,
    TokensDependency,
)
from fairlead.server.access.tokens import Token
from fairlead.server.api import schemas as msg
from fairlead.store import Audit

access = APIRouter(prefix="/v1", tags=["access"])


@access.post("/tokens", status_code=201)
async def make_token(
    new: msg.NewToken, live: LiveDependency, tokens: TokensDependency, principal: CurrentPrincipal
) -> msg.TokenView:
    """Make a token; only this response shows it."""
    principal.require("admin")
    if new.role == "tenant" and new.tenant is None:
        raise InputError("missing", fix="expected the tenant of the token", field="tenant")
    if new.role != "tenant" and (new.tenant is not None or new.sees):
        field = "sees" if new.tenant is None else "tenant"
        problem = f"not allowed for role {new.role}, which sees all tenants"
        raise InputError(problem, fix="omit it, or use role tenant", field=field)
    at = live.clock.now()
    text, token, change = tokens.make(
        new.name, new.role, tenant=new.tenant, at=at, lasts_s=new.lasts_s, sees=new.sees
    )
    await live.write([change, Audit(at, principal.name, "token", token.id, new.name)])
    return _token_view(token, text)


@access.get("/tokens")
async def list_tokens(
    tokens: TokensDependency, principal: CurrentPrincipal
) -> list[msg.TokenView]:
    """List the tokens without their secrets."""
    principal.require("admin")
    return [_token_view(token) for token in tokens.list()]


@access.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(
    token_id: str, live: LiveDependency, tokens: TokensDependency, principal: CurrentPrincipal
) -> None:
    """Revoke a token."""
    principal.require("admin")
    if tokens.is_last_admin(token_id, live.clock.now()):
        raise ProtocolError(
            "last admin token, or the last one that does not expire: make another one first"
        )
    change = tokens.revoke(token_id)
    if change is None:
        raise NotFoundError(f"no token {token_id!r}")
    await live.write([change, Audit(live.clock.now(), principal.name, "revoke", token_id)])


@access.get("/audit")
async def audit(
    live: LiveDependency,
    principal: CurrentPrincipal,
    before: Annotated[int | None, Query(ge=0, le=1 << 60)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[msg.AnyJson]:
    """Return the audit trail: the author of each change, newest first."""
    principal.require("admin")
    return await asyncio.to_thread(live.store.audit_trail, before=before, limit=limit)


def _token_view(token: Token, text: str | None = None) -> msg.TokenView:
    return msg.TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        tenant=token.tenant,
        sees=list(token.sees),
        created_at=token.created_at,
        expires_at=token.expires_at,
        token=text,
    )
