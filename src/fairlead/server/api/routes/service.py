"""The service itself: what happens, its health and its figures."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from fairlead.live.driver import Live
from fairlead.server.access.authorization import (
    LiveDependency,
    TokensDependency,
    Who,
    bearer,
)
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api.metrics import render
from fairlead.server.api.schemas import TEXT

service = APIRouter(tags=["service"])

_SILENCE_S = 15.0
"""after which those who follow events are told that the server is still there"""


@service.get("/v1/events", response_class=StreamingResponse)
async def stream(
    live: LiveDependency, tokens: TokensDependency, who: Who, request: Request
) -> StreamingResponse:
    """Follow what happens, as server-sent events, for as long as the token is good."""
    del who  # that it is good now
    events = follow(live, tokens, bearer(request))
    return StreamingResponse(events, media_type="text/event-stream")


async def follow(live: Live, tokens: Tokens, token: str) -> AsyncIterator[str]:
    """Yield what happens and whoever has a token may see, until the token is not good any more."""
    mine: asyncio.Queue[dict[str, object]] = asyncio.Queue(1000)
    live.listeners.add(mine)
    jobs = live.scheduler.jobs
    try:
        yield ": welcome\n\n"
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    found = await mine.get()
            except TimeoutError:
                found = None
            try:
                who = tokens.recognise(token, live.clock.now())
            except AuthError:
                return  # it was revoked, or has expired
            if found is None:
                yield ": still here\n\n"
                continue
            number = jobs.number.get(str(found.get("job")))
            if number is None or who.can_see(jobs.jobs[number].tenant):
                yield f"event: {found['event']}\ndata: {json.dumps(found)}\n\n"
            if found["event"] == "server.stopping":
                return
    finally:
        live.listeners.discard(mine)


@service.get("/healthz", response_class=PlainTextResponse)
async def healthy() -> str:
    """Say that the process lives."""
    return "ok\n"


@service.get("/readyz", response_class=PlainTextResponse, responses={503: {"model": str}})
async def ready(live: LiveDependency) -> Response:
    """Say whether the scheduler decides."""
    broken = live.broken.is_set()
    return PlainTextResponse("broken\n" if broken else "ok\n", 503 if broken else 200)


@service.get("/metrics", responses=TEXT)
async def metrics(live: LiveDependency, who: Who) -> Response:
    """Return figures in Prometheus's form; for admins and viewers."""
    who.require("admin", "viewer")
    return Response(render(live), media_type="text/plain; version=0.0.4; charset=utf-8")
