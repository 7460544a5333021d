"""The REST API under /v1, health and metrics: one application."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fairlead import __version__
from fairlead.live.driver import Live
from fairlead.model.errors import FairleadError, InputError
from fairlead.server.access.rate_limits import (
    BodyLimitMiddleware,
    BusyError,
    Limits,
    RateLimiters,
    retry_after,
)
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api import schemas as msg
from fairlead.server.api.renewals import Renewals
from fairlead.server.api.routes.access import access
from fairlead.server.api.routes.insights import About, insights
from fairlead.server.api.routes.jobs import jobs
from fairlead.server.api.routes.leases import leases
from fairlead.server.api.routes.nodes import nodes
from fairlead.server.api.routes.service import service
from fairlead.server.api.routes.tenants import tenants
from fairlead.server.logs import AccessLogMiddleware

_STATUS = {"input": 422, "usage": 400, "protocol": 409, "missing": 404, "fenced": 503, "busy": 429}
_TROUBLE: dict[int | str, dict[str, Any]] = {
    status: {"model": msg.Trouble} for status in (400, 401, 403, 404, 409, 413, 422, 429)
}
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
    app.state.gates = RateLimiters(limits)
    app.add_exception_handler(FairleadError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _unusable)
    # In the order of how often they are asked: all are tried until one fits.
    for router in (leases, jobs, tenants, nodes, access, insights, service):
        app.include_router(router)
    inner = Renewals(app, live, tokens, app.state.gates)
    return AccessLogMiddleware(BodyLimitMiddleware(inner, limits.body_bytes), all_paths=log_all)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FairleadError)
    status = _STATUS.get(error.code, 500)
    if isinstance(error, AuthError):
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
    if first["type"] == "json_invalid":
        why = str(first.get("ctx", {}).get("error", "it cannot be read"))
        said = f"the body is no JSON document: {why} (at character {first['loc'][-1]})"
        return _problem(422, "input", said, None)
    field = ".".join(str(part) for part in first["loc"][1:])
    return _problem(422, "input", f"{field or 'the request'}: {first['msg']}", field or None)


def _problem(status: int, code: str, message: str, field: str | None) -> JSONResponse:
    body = {"error": {"code": code, "message": message, "field": field}}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(body, status, headers)
