"""Routes for access: tokens, the audit trail, and the provider at which users log in."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from fairlead.model.errors import InputError, ProtocolError
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    NotFoundError,
    TokensDependency,
)
from fairlead.server.access.separation import require_separation
from fairlead.server.access.tokens import Token, Tokens
from fairlead.server.api import schemas as msg
from fairlead.store import Audit
from fairlead.store.audit import AuditFilter

access = APIRouter(prefix="/v1", tags=["access"])


@access.post("/tokens", status_code=201)
async def make_token(
    new: msg.NewToken,
    live: LiveDependency,
    tokens: TokensDependency,
    principal: CurrentPrincipal,
    context: ContextDependency,
) -> msg.TokenView:
    """Make a token; only this response shows it."""
    principal.require("admin")
    principal.require_scopes_of(new.scopes)
    if new.role == "tenant" and new.tenant is None:
        raise InputError("missing", fix="expected the tenant of the token", field="tenant")
    if new.role != "tenant" and (new.tenant is not None or new.sees):
        field = "sees" if new.tenant is None else "tenant"
        problem = f"not allowed for role {new.role}, which sees all tenants"
        raise InputError(problem, fix="omit it, or use role tenant", field=field)
    separates = context.info.separates_tenants
    require_separation(tokens.list(), separates_tenants=separates, new_tenant=new.tenant)
    at = live.clock.now()
    text, token, change = tokens.make(
        new.name,
        new.role,
        tenant=new.tenant,
        at=at,
        lasts_s=new.lasts_s,
        sees=new.sees,
        scopes=sorted(set(new.scopes)),
    )
    settings = ("role", "tenant", "sees", "scopes", "expires_at")
    values = {name: {"old": None, "new": getattr(token, name)} for name in settings}
    audit = Audit(at, principal.actor, "token", token.id, new.name, changes=values)
    await live.write([change, audit])
    return _token_view(tokens, token, text)


@access.get("/tokens")
async def list_tokens(
    tokens: TokensDependency, principal: CurrentPrincipal
) -> list[msg.TokenView]:
    """List the tokens without their secrets."""
    principal.require("admin")
    return [_token_view(tokens, token) for token in tokens.list()]


@access.post("/tokens/{token_id}/rotate")
async def rotate_token(
    token_id: str,
    rotation: msg.TokenRotation,
    live: LiveDependency,
    tokens: TokensDependency,
    principal: CurrentPrincipal,
) -> msg.TokenView:
    """Give a token a new secret, shown in this response only; id and rights stay."""
    principal.require("admin")
    token, at = _require_token(tokens, token_id), live.clock.now()
    principal.require_scopes_of(token.scopes)
    if token.has_expired(at):
        raise ProtocolError(f"token {token_id!r} has expired: make another one")
    text, token, change = tokens.rotate(token_id, at=at, overlap_s=rotation.overlap_s)
    values = {"old_secret_until": {"old": None, "new": token.old_until}}
    audit = Audit(at, principal.actor, "rotate", token_id, token.name, changes=values)
    await live.write([change, audit])
    return _token_view(tokens, token, text)


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
    token = _require_token(tokens, token_id)
    audit = Audit(live.clock.now(), principal.actor, "revoke", token_id, token.name)
    await live.write([*tokens.revoke(token_id), audit])


@access.get("/audit")
async def audit(
    live: LiveDependency,
    principal: CurrentPrincipal,
    before: Annotated[int | None, Query(ge=0, le=1 << 60)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    author: Annotated[str | None, Query(max_length=1000)] = None,
    role: Annotated[str | None, Query(max_length=100)] = None,
    action: Annotated[str | None, Query(max_length=100)] = None,
    subject: Annotated[str | None, Query(max_length=1000)] = None,
    since: Annotated[float | None, Query(ge=0, le=1e12)] = None,
    until: Annotated[float | None, Query(ge=0, le=1e12)] = None,
) -> list[msg.AuditEntry]:
    """Return the audit trail: author, action and values of each change, newest first.

    ``author`` is a name or the id of a token. ``since`` and ``until`` are seconds since 1970; the
    entries are before ``until``.
    """
    principal.require("admin")
    wanted = AuditFilter(
        author=author, role=role, action=action, subject=subject, since=since, until=until
    )
    read = partial(live.store.audit_trail, before=before, limit=limit, wanted=wanted)
    entries = await asyncio.to_thread(read)
    return [msg.AuditEntry(**entry) for entry in entries]


@access.get("/audit/verify")
async def verify_audit_trail(
    server: ContextDependency, principal: CurrentPrincipal
) -> msg.AuditVerification:
    """Check the hash chain of the whole audit trail."""
    principal.require("admin")
    async with server.verifying:
        result = await asyncio.to_thread(server.live.store.verify_audit_trail)
    return msg.AuditVerification(
        intact=result.problem is None,
        entries=result.entries,
        newest_hash=result.newest_hash,
        problem=result.problem,
    )


@access.get("/oidc")
async def oidc(server: ContextDependency) -> msg.OidcView:
    """Return the OpenID Connect provider; without a token, since users log in there first."""
    if server.oidc is None:
        raise NotFoundError("this server has no OpenID Connect provider: see --oidc-issuer")
    config = server.oidc.config
    return msg.OidcView(issuer=config.issuer, client_id=config.client_id)


def _require_token(tokens: Tokens, token_id: str) -> Token:
    token = tokens.find(token_id)
    if token is None:
        raise NotFoundError(f"no token {token_id!r}")
    return token


def _token_view(tokens: Tokens, token: Token, text: str | None = None) -> msg.TokenView:
    return msg.TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        tenant=token.tenant,
        sees=list(token.sees),
        created_at=token.created_at,
        expires_at=token.expires_at,
        scopes=list(token.scopes),
        last_used_at=tokens.used_at(token.id),
        token=text,
    )
