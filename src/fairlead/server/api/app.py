"""The web application: REST API under /v1, web pages, health and metrics."""

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fairlead.code_snapshot.location import SnapshotLimits
from fairlead.live.driver import Live
from fairlead.model.errors import FairleadError, InputError
from fairlead.server.access.denials import DeniedAttempts
from fairlead.server.access.hosts import AllowedHosts, HostMiddleware
from fairlead.server.access.oidc import OidcLogin
from fairlead.server.access.rate_limits import (
    BodyLimitMiddleware,
    RateLimitedError,
    RateLimiters,
    RateLimits,
    retry_after,
)
from fairlead.server.access.secrets import JobSecrets
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api import schemas as msg
from fairlead.server.api.batches.routes import batches
from fairlead.server.api.policy_room.routes import policy_room
from fairlead.server.api.renewals import RenewalMiddleware
from fairlead.server.api.rounds.routes import rounds
from fairlead.server.api.routes.access import access
from fairlead.server.api.routes.code_snapshots import code_snapshots
from fairlead.server.api.routes.history import history
from fairlead.server.api.routes.insights import insights
from fairlead.server.api.routes.jobs import jobs
from fairlead.server.api.routes.leases import leases
from fairlead.server.api.routes.limits import limits as limits_routes
from fairlead.server.api.routes.nodes import nodes
from fairlead.server.api.routes.policy import policy
from fairlead.server.api.routes.secrets import secrets as secret_routes
from fairlead.server.api.routes.service import service
from fairlead.server.api.routes.session import session
from fairlead.server.api.routes.speeds import speeds
from fairlead.server.api.routes.tenants import tenants
from fairlead.server.api.searches.routes import searches
from fairlead.server.api.simulations.routes import simulations
from fairlead.server.api.timeline.routes import timeline
from fairlead.server.context import ServerContext, ServerInfo, context_of
from fairlead.server.error_response import error_response
from fairlead.server.interruption import InterruptionMiddleware
from fairlead.server.invalid_request import field_name, json_problem_of, problem_of
from fairlead.server.json_bodies import JsonBodyMiddleware
from fairlead.server.logs import AccessLogMiddleware
from fairlead.server.query_parameters import refuse_unknown_parameters
from fairlead.server.web.routes import web
from fairlead.version import __version__

_STATUS = {
    "input": 422,
    "usage": 400,
    "protocol": 409,
    "missing": 404,
    "fenced": 503,
    "store-unavailable": 503,
    "provider": 503,
    "stopping": 503,
    "busy": 429,
}
ROUTERS = (
    *(leases, jobs, tenants, nodes, access, secret_routes, insights, speeds, history, policy),
    *(batches, searches),
    *(rounds, timeline, policy_room, simulations, code_snapshots, limits_routes),
    *(session, service, web),
)
"""ordered by request rate: the first match answers"""
_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": msg.Trouble} for status in (400, 401, 403, 404, 409, 413, 421, 422, 429, 503)
}
_MAX_PATH = 200
"""characters of a path that an error repeats"""
_DEFAULT_LIMITS, _SNAPSHOT_LIMITS = RateLimits(), SnapshotLimits()


def make_app(
    live: Live,
    tokens: Tokens,
    *,
    secrets: JobSecrets | None = None,
    info: ServerInfo | None = None,
    snapshot_limits: SnapshotLimits = _SNAPSHOT_LIMITS,
    limits: RateLimits = _DEFAULT_LIMITS,
    hosts: AllowedHosts | None = None,
    oidc: OidcLogin | None = None,
) -> ASGIApp:
    """Return the application that serves a live scheduler.

    Without ``secrets`` the application has none and keeps new ones in memory only. ``hosts`` are
    the names that requests may have in their header Host; None: any.
    """
    app = FastAPI(
        title="Fairlead",
        version=__version__,
        responses=_ERROR_RESPONSES,
        redirect_slashes=False,
        dependencies=[Depends(refuse_unknown_parameters)],
    )
    context = ServerContext(
        live,
        tokens,
        RateLimiters(limits),
        info or ServerInfo(),
        secrets or JobSecrets.empty(),
        denied_attempts=DeniedAttempts(live),
        oidc=oidc,
        snapshot_limits=snapshot_limits,
    )
    context.live_limits.restore()
    app.state.context = context
    add_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    renewals = RenewalMiddleware(JsonBodyMiddleware(app), context)
    inner: ASGIApp = BodyLimitMiddleware(renewals, limits.body_bytes)
    if hosts is not None:
        inner = HostMiddleware(inner, hosts)
    return AccessLogMiddleware(InterruptionMiddleware(inner, _refusal))


def _refusal(error: FairleadError) -> JSONResponse:
    return error_response(status_of(error.code), error.code, str(error))


def status_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    return _STATUS.get(code, 500)


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error in the form of ``error_response``."""
    app.add_exception_handler(FairleadError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FairleadError)
    status = status_of(error.code)
    if isinstance(error, AuthError):
        status = 403 if error.known else 401
        if (denied_attempts := context_of(request).denied_attempts) is not None:
            denied_attempts.record(request, error)
    field = error.field if isinstance(error, InputError) else None
    headers = {"Retry-After": retry_after(error)} if isinstance(error, RateLimitedError) else None
    return error_response(status, error.code, str(error), field, headers)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status, path = error.status_code, request.url.path[:_MAX_PATH]
    if status == 404:
        message = f"{path}: no such path: see the schema at /openapi.json"
        return error_response(status, "missing", message)
    message = str(error.detail)
    if status == 405:
        allowed = (error.headers or {}).get("Allow", "another one")
        message = f"{request.method} {path}: method not allowed: expected {allowed}"
    return error_response(status, "usage", message, headers=error.headers)


async def _on_validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(422, "input", json_problem_of(first))
    field = field_name(first["loc"][1:])
    return error_response(
        422, "input", f"{field or 'request'}: {problem_of(first)}", field or None
    )


async def _on_bug(request: Request, _: Exception) -> JSONResponse:
    """Answer a request that failed by a bug; the server's log has the traceback."""
    path = request.url.path[:_MAX_PATH]
    message = f"{request.method} {path}: internal error: see the server's log"
    return error_response(500, "internal", message)
