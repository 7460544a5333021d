"""A long request that is not done when the server stops."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from fairlead.server.interruption import InterruptionMiddleware

SCOPE = {"type": "http", "method": "GET", "path": "/"}
STOPPING = PlainTextResponse("stopping", status_code=503)


async def cancelled(app: Any) -> list[Message]:
    """Return what is sent if the request is cancelled once it waits."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    waits = asyncio.Event()
    wrapped = InterruptionMiddleware(lambda *asgi: app(*asgi, waits), STOPPING)
    task = asyncio.ensure_future(wrapped(SCOPE, receive, send))
    await waits.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        sent.append({"type": "cancelled"})
    return sent


async def wait(_: Scope, receive: Receive, send: Send, waits: asyncio.Event) -> None:
    del receive, send
    waits.set()
    await asyncio.Event().wait()


async def stream(_: Scope, receive: Receive, send: Send, waits: asyncio.Event) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await wait({}, receive, send, waits)


@pytest.mark.parametrize(
    ("app", "messages", "status"),
    [
        (wait, ["http.response.start", "http.response.body"], 503),
        (stream, ["http.response.start", "cancelled"], 200),
    ],
)
def test_a_cancelled_request_is_answered_once(app: Any, messages: list[str], status: int) -> None:
    sent = asyncio.run(cancelled(app))
    assert [message["type"] for message in sent] == messages
    assert sent[0]["status"] == status
