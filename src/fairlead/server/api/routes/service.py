"""Routes of the service itself: event stream, health and metrics."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from fairlead.live.driver import Live
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    token_of,
)
from fairlead.server.access.identity_provider import ProviderError
from fairlead.server.access.tokens import AuthError, Principal
from fairlead.server.api.metrics import render
from fairlead.server.api.schemas import TEXT

service = APIRouter(tags=["service"])

_SILENCE_S = 15.0
"""silence after which a comment shows followers that the stream is alive"""


@service.get("/v1/events", response_class=StreamingResponse)
async def stream(
    server: ContextDependency, principal: CurrentPrincipal, request: Request
) -> StreamingResponse:
    """Follow events as server-sent events while the token is valid."""
    del principal  # the dependency has checked the token
    events = follow(server.live, partial(server.authenticate, token_of(request)))
    return StreamingResponse(events, media_type="text/event-stream")


async def follow(
    live: Live, authenticate: Callable[[], Awaitable[Principal]]
) -> AsyncIterator[str]:
    """Yield the events that the owner of a token may see, until the token is invalid."""
    queue: asyncio.Queue[dict[str, object]] = asyncio.Queue(1000)
    live.stream.subscribers.add(queue)
    queries = live.queries
    try:
        yield ": welcome\n\n"
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    event = await queue.get()
            except TimeoutError:
                event = None
            try:
                principal = await authenticate()
            except (AuthError, ProviderError):
                return  # revoked or expired
            if event is None:
                yield ": still here\n\n"
                continue
            number = queries.find_job(str(event.get("job")))
            if number is None or principal.can_see(queries.job(number).tenant):
                yield f"event: {event['event']}\ndata: {json.dumps(event)}\n\n"
            if event["event"] == "server.stopping":
                return
    finally:
        live.stream.subscribers.discard(queue)


@service.get("/healthz", response_class=PlainTextResponse)
async def healthy() -> str:
    """Answer that the process is alive."""
    return "ok\n"


@service.get("/readyz", response_class=PlainTextResponse, responses={503: {"model": str}})
async def ready(live: LiveDependency) -> Response:
    """Answer whether the scheduler makes decisions, and why these may be worse than usual."""
    if live.tasks.broken.is_set():
        return PlainTextResponse("broken\n", 503)
    failures = live.rounds.failures
    if failures.failing:
        return PlainTextResponse(f"plans fail: {failures.problem}\n", 503)
    # Jobs of a tenant must not make a load balancer avoid the server.
    left_out = live.queries.left_out_count
    problems = [f"jobs left out of plans: {left_out}"] if left_out else []
    problems += [failures.problem] if failures.problem else []
    return PlainTextResponse(f"degraded: {'; '.join(problems)}\n" if problems else "ok\n")


@service.get("/metrics", responses=TEXT)
async def metrics(live: LiveDependency, principal: CurrentPrincipal) -> Response:
    """Return metrics in the Prometheus text format; for admins and viewers."""
    principal.require("admin", "viewer")
    return Response(render(live), media_type="text/plain; version=0.0.4; charset=utf-8")
