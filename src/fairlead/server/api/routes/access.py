"""Access: tokens, and who changed what."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from fairlead.model.errors import InputError, ProtocolError
from fairlead.server.access.authorization import (
    LiveDependency,
    NotFoundError,
    TokensDependency,
    Who,
)
from fairlead.server.api import schemas as msg
from fairlead.store import Audit

access = APIRouter(prefix="/v1", tags=["access"])


@access.post("/tokens", status_code=201)
async def make_token(
    new: msg.NewToken, live: LiveDependency, tokens: TokensDependency, who: Who
) -> msg.TokenView:
    """Make a token; it is shown this once."""
    who.require("admin")
    if new.role == "tenant" and new.tenant is None:
        raise InputError("whose is it", fix="name the tenant", field="tenant")
    if new.role != "tenant" and (new.tenant is not None or new.sees):
        field = "sees" if new.tenant is None else "tenant"
        fix = "leave it out, or give the role tenant"
        raise InputError(f"a token of the role {new.role} sees all", fix=fix, field=field)
    at = live.clock.now()
    text, token, change = tokens.make(
        new.name, new.role, tenant=new.tenant, at=at, lasts_s=new.lasts_s, sees=new.sees
    )
    await live.write([change, Audit(at, who.name, "token", token.id, new.name)])
    return _token_view(token, text)


@access.get("/tokens")
async def list_tokens(tokens: TokensDependency, who: Who) -> list[msg.TokenView]:
    """List the tokens there are, without what would let one use them."""
    who.require("admin")
    return [_token_view(token) for token in tokens.list()]


@access.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(
    token_id: str, live: LiveDependency, tokens: TokensDependency, who: Who
) -> None:
    """Make a token useless."""
    who.require("admin")
    if tokens.is_last_admin(token_id, live.clock.now()):
        raise ProtocolError(
            "it is the only admin's token, or the only one that does not expire: make another one"
            " first"
        )
    change = tokens.revoke(token_id)
    if change is None:
        raise NotFoundError(f"there is no token {token_id!r}")
    await live.write([change, Audit(live.clock.now(), who.name, "revoke", token_id)])


@access.get("/audit")
async def audit(
    live: LiveDependency,
    who: Who,
    before: Annotated[int | None, Query(ge=0, le=1 << 60)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[msg.AnyJson]:
    """Show who changed what, newest first."""
    who.require("admin")
    return await asyncio.to_thread(live.store.audit_trail, before=before, limit=limit)


def _token_view(token: Any, text: str | None = None) -> msg.TokenView:
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
