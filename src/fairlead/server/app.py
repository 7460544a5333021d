"""The REST API under /v1, health and metrics."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fairlead import __version__
from fairlead.core.jobs import JobState
from fairlead.live.driver import Live
from fairlead.live.spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError, InputError, ProtocolError
from fairlead.model.job import DEFAULT_TENANT, Tenant, check_quotas
from fairlead.server import messages as msg
from fairlead.server.auth import DeniedError, Principal, Tokens
from fairlead.server.insights import About, insights
from fairlead.server.limits import BodyLimit, BusyError, Gates, Limits, retry_after
from fairlead.server.logs import AccessLog
from fairlead.server.metrics import render
from fairlead.server.renewals import Renewals, renewed
from fairlead.server.views import job_row, job_view, listed, node_views, share_views
from fairlead.server.who import (
    LiveNow,
    MissingError,
    TokensNow,
    Who,
    bearer,
    find,
    gates_of,
    owned,
    refused,
)
from fairlead.store import Audit

_STATUS = {"input": 422, "usage": 400, "protocol": 409, "missing": 404, "fenced": 503, "busy": 429}
_TROUBLE: dict[int | str, dict[str, Any]] = {
    status: {"model": msg.Trouble} for status in (400, 401, 403, 404, 409, 413, 422, 429)
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
_MOST_LOG = 1 << 20
_UNKNOWN, _DEFAULT_LIMITS = About(), Limits()


def make_app(
    live: Live,
    tokens: Tokens,
    *,
    about: About = _UNKNOWN,
    limits: Limits = _DEFAULT_LIMITS,
    log_all: bool = False,
) -> ASGIApp:
    """Return the application that serves a live scheduler; ``log_all`` logs renewals, too."""
    app = FastAPI(
        title="Fairlead", version=__version__, responses=_TROUBLE, redirect_slashes=False
    )
    app.state.live, app.state.tokens, app.state.about = live, tokens, about
    app.state.gates = Gates(limits)
    app.add_exception_handler(FairleadError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _unusable)
    # In the order of how often they are asked: all are tried until one fits.
    for router in (leases, jobs, tenants, nodes, tokens_, insights, rest):
        app.include_router(router)
    inner = Renewals(app, live, tokens, app.state.gates)
    return AccessLog(BodyLimit(inner, limits.body_bytes), all_paths=log_all)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FairleadError)
    status = _STATUS.get(error.code, 500)
    if isinstance(error, DeniedError):
        status = 403 if error.known else 401
    field = error.field if isinstance(error, InputError) else None
    found = _problem(status, error.code, str(error), field)
    if isinstance(error, BusyError):
        found.headers["Retry-After"] = retry_after(error)
    return found


async def _unusable(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, "usage", str(error.detail), None)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return _problem(422, "input", f"{field or 'the request'}: {first['msg']}", field or None)


def _problem(status: int, code: str, message: str, field: str | None) -> JSONResponse:
    body = {"error": {"code": code, "message": message, "field": field}}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(body, status, headers)


# -- jobs ---------------------------------------------------------------------------------------

jobs = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@jobs.post("", status_code=201)
async def submit(new: msg.NewJob, live: LiveNow, who: Who) -> msg.JobView:
    """Submit a job; it is on disk when this returns."""
    tenant = new.tenant or who.tenant or DEFAULT_TENANT
    who.require_tenant(tenant)
    values = new.model_dump()
    values["command"] = tuple(new.command)
    values["accelerators"] = tuple(new.accelerators) if new.accelerators else None
    made = await live.submit(JobSpec(**{**values, "tenant": tenant}), who.name)
    return job_view(live, live.scheduler.jobs.number[made.id])


@jobs.get("", response_model=list[msg.JobView])
async def list_jobs(
    live: LiveNow,
    who: Who,
    state: msg.State | None = None,
    tenant: str | None = None,
    name: Annotated[str | None, Query(max_length=128)] = None,
    multijob: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """List jobs, oldest first, from the ``after``-th on; ``name`` is a pattern such as lr-*."""
    seen, all_jobs, found = live.scheduler.jobs, live.scheduler.jobs.jobs, []
    visible = [who.may_see(t.id) and tenant in (None, t.id) for t in seen.tenants]
    for number in listed(live, np.array(visible, dtype=bool), state, after).tolist():
        if multijob not in (None, all_jobs[number].multijob):
            continue
        if name is not None and not fnmatchcase(live.specs[seen.ids[number]].name, name):
            continue
        found.append(job_row(live, number))
        if len(found) == limit:
            break
    # Rows are of JobView's form already; validating a thousand of them takes most of the time.
    return Response(json.dumps(found), media_type="application/json")


@jobs.get("/{job_id}")
async def show(job_id: str, live: LiveNow, who: Who) -> msg.JobView:
    """Show one job."""
    return job_view(live, find(live, who, job_id))


@jobs.patch("/{job_id}")
async def change(job_id: str, new: msg.JobChange, live: LiveNow, who: Who) -> msg.JobView:
    """Change a job's priority, weight or deadline."""
    number = owned(live, who, job_id)
    given = {key: value for key, value in new.model_dump().items() if value is not None}
    job = replace(live.scheduler.jobs.jobs[number], **given)
    audit = Audit(live.clock.now(), who.name, "change", job_id, json.dumps(given))
    await live.change(lambda at: ev.JobChanged(at, job), audit)
    return job_view(live, number)


@jobs.post("/{job_id}/cancel")
async def cancel(job_id: str, live: LiveNow, who: Who) -> msg.JobView:
    """End a job for good."""
    number = owned(live, who, job_id)
    await live.cancel(job_id, who.name)
    return job_view(live, number)


@jobs.post("/{job_id}/suspend")
async def suspend(job_id: str, live: LiveNow, who: Who) -> msg.JobView:
    """Have a job checkpoint, leave its devices, and wait."""
    number = owned(live, who, job_id)
    await live.hold(job_id, who.name)
    return job_view(live, number)


@jobs.post("/{job_id}/resume")
async def resume(job_id: str, live: LiveNow, who: Who) -> msg.JobView:
    """Let a suspended job run again."""
    number = owned(live, who, job_id)
    if live.scheduler.jobs.state[number] == JobState.HELD:
        await live.release(job_id, who.name)
    return job_view(live, number)


@jobs.get("/{job_id}/logs", responses=_TEXT)
async def logs(
    job_id: str,
    live: LiveNow,
    who: Who,
    rank: Annotated[int, Query(ge=0, lt=100_000)] = 0,
    after: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
) -> Response:
    """Return what a job's processes printed, of all its leases, from byte ``after`` on.

    The header Fairlead-Next says from where to go on.
    """
    find(live, who, job_id)
    home = live.orders.home(job_id) / "logs"
    text = await asyncio.to_thread(_read_logs, home, rank, after)
    headers = {"Fairlead-Next": str(after + len(text))}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


def _read_logs(home: Path, rank: int, after: int) -> bytes:
    found, left = b"", after
    leases = sorted((int(p.name.split(".")[0]), p) for p in home.glob(f"*.{rank}.log"))
    for _, path in leases:
        size = path.stat().st_size
        if left >= size:
            left -= size
            continue
        with path.open("rb") as file:
            file.seek(left)
            found += file.read(_MOST_LOG - len(found))
        left = 0
        if len(found) >= _MOST_LOG:
            break
    return found


# -- leases -------------------------------------------------------------------------------------

leases = APIRouter(prefix="/v1/leases", tags=["leases"])


@leases.post("/{lease}/renew")
async def renew(lease: int, told: msg.Renewal, request: Request) -> msg.Renewed:
    """Take in a job's progress and say how long its lease lasts; for job processes only."""
    state = request.app.state
    try:
        answer = renewed(state.live, state.tokens, gates_of(request), lease, bearer(request), told)
    except DeniedError as error:
        raise refused(request, error) from None
    return msg.Renewed(**answer)  # type: ignore[arg-type]  # made for it


# -- tenants ------------------------------------------------------------------------------------

tenants = APIRouter(prefix="/v1", tags=["tenants"])


@tenants.get("/tenants")
async def list_tenants(live: LiveNow, who: Who) -> list[msg.TenantView]:
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
        if who.may_see(t.id)
    ]


@tenants.put("/tenants/{tenant_id}")
async def set_tenant(
    tenant_id: str, new: msg.TenantView, live: LiveNow, who: Who
) -> msg.TenantView:
    """Add a tenant or change its weight, parent, quotas; for admins."""
    who.require("admin")
    if new.id != tenant_id:
        raise InputError(f"{new.id!r} is not {tenant_id!r}", fix="give one id", field="id")
    tenant = Tenant(**new.model_dump())
    others = [t for t in live.scheduler.jobs.tenants if t.id != tenant_id]
    check_quotas([*others, tenant], live.scheduler.cluster.count_by_name())
    parent = {t.id: t.parent for t in [*others, tenant]}
    at, seen = tenant.parent, {tenant.id}
    while at is not None:
        if at in seen:
            raise InputError(f"{at!r} is inside itself", fix="choose another", field="parent")
        seen.add(at)
        at = parent.get(at)
    await live.set_tenant(tenant, who.name)
    return new


@tenants.get("/shares")
async def shares(live: LiveNow, who: Who) -> list[msg.ShareView]:
    """Show what tenants are entitled to and what they have."""
    return [view for view in share_views(live) if who.may_see(view.tenant)]


# -- nodes --------------------------------------------------------------------------------------

nodes = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@nodes.get("")
async def list_nodes(live: LiveNow, who: Who) -> list[msg.NodeView]:
    """List the nodes."""
    del who
    return node_views(live)


@nodes.post("/{node}/drain")
async def drain(node: str, live: LiveNow, who: Who) -> msg.NodeView:
    """Have all jobs leave a node, and start none there until it is returned."""
    _managed(live, who, node)
    await live.nodes.drain(node, who.name)
    return _managed(live, who, node)


@nodes.post("/{node}/cordon")
async def cordon(node: str, live: LiveNow, who: Who) -> msg.NodeView:
    """Start nothing new on a node; what runs there goes on until it ends."""
    _managed(live, who, node)
    await live.nodes.cordon(node, who.name)
    return _managed(live, who, node)


@nodes.post("/{node}/return")
async def put_back(node: str, live: LiveNow, who: Who) -> msg.NodeView:
    """Use a drained or cordoned node again."""
    _managed(live, who, node)
    await live.nodes.take_back(node, who.name)
    return _managed(live, who, node)


@nodes.delete("/{node}", status_code=204)
async def remove_node(node: str, live: LiveNow, who: Who) -> None:
    """Give a node up for good; refused while jobs run there, unless it was drained."""
    _managed(live, who, node)
    await live.nodes.remove(node, who.name)


def _managed(live: Live, who: Principal, node: str) -> msg.NodeView:
    """Return a node that whoever asks may manage."""
    who.require("admin")
    for view in node_views(live):
        if view.id == node:
            return view
    raise MissingError(f"there is no node {node!r}")


# -- tokens -------------------------------------------------------------------------------------

tokens_ = APIRouter(prefix="/v1", tags=["access"])


@tokens_.post("/tokens", status_code=201)
async def make_token(
    new: msg.NewToken, live: LiveNow, tokens: TokensNow, who: Who
) -> msg.TokenView:
    """Make a token; it is shown this once."""
    who.require("admin")
    if new.role == "tenant" and new.tenant is None:
        raise InputError("whose is it", fix="name the tenant", field="tenant")
    at = live.clock.now()
    text, token, change = tokens.make(
        new.name, new.role, tenant=new.tenant, at=at, lasts_s=new.lasts_s, sees=new.sees
    )
    await live.write([change, Audit(at, who.name, "token", token.id, new.name)])
    return _token_view(token, text)


@tokens_.get("/tokens")
async def list_tokens(tokens: TokensNow, who: Who) -> list[msg.TokenView]:
    """List the tokens there are, without what would let one use them."""
    who.require("admin")
    return [_token_view(token) for token in tokens.list()]


@tokens_.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(token_id: str, live: LiveNow, tokens: TokensNow, who: Who) -> None:
    """Make a token useless."""
    who.require("admin")
    if tokens.is_last_admin(token_id):
        raise ProtocolError("it is the only admin's token: make another one first")
    change = tokens.revoke(token_id)
    if change is None:
        raise MissingError(f"there is no token {token_id!r}")
    await live.write([change, Audit(live.clock.now(), who.name, "revoke", token_id)])


@tokens_.get("/audit")
async def audit(
    live: LiveNow,
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


# -- the rest -------------------------------------------------------------------------------------

rest = APIRouter(tags=["service"])


@rest.get("/v1/events", response_class=StreamingResponse)
async def stream(live: LiveNow, who: Who) -> StreamingResponse:
    """Follow what happens, as server-sent events."""
    return StreamingResponse(_follow(live, who), media_type="text/event-stream")


async def _follow(live: Live, who: Principal) -> AsyncIterator[str]:
    mine: asyncio.Queue[dict[str, object]] = asyncio.Queue(1000)
    live.listeners.add(mine)
    jobs = live.scheduler.jobs
    try:
        yield ": welcome\n\n"
        while True:
            try:
                async with asyncio.timeout(15.0):
                    found = await mine.get()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            number = jobs.number.get(str(found.get("job")))
            if number is None or who.may_see(jobs.jobs[number].tenant):
                yield f"event: {found['event']}\ndata: {json.dumps(found)}\n\n"
            if found["event"] == "server.stopping":
                return
    finally:
        live.listeners.discard(mine)


@rest.get("/healthz", response_class=PlainTextResponse)
async def healthy() -> str:
    """Say that the process lives."""
    return "ok\n"


@rest.get("/readyz", response_class=PlainTextResponse, responses={503: {"model": str}})
async def ready(live: LiveNow) -> Response:
    """Say whether the scheduler decides."""
    broken = live.broken.is_set()
    return PlainTextResponse("broken\n" if broken else "ok\n", 503 if broken else 200)


@rest.get("/metrics", responses=_TEXT)
async def metrics(live: LiveNow, who: Who) -> Response:
    """Return figures in Prometheus's form; for admins and viewers."""
    who.require("admin", "viewer")
    return Response(render(live), media_type="text/plain; version=0.0.4; charset=utf-8")
