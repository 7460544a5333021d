"""A long request that is not done when the server stops."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from fairlead.server.interruption import InterruptionMiddleware, StoppingError


def answer_to(error: StoppingError) -> PlainTextResponse:
    return PlainTextResponse(str(error), status_code=503)


async def cancelled(app: Any, method: str) -> list[Message]:
    """Return what is sent if the request is cancelled once it waits."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    waits = asyncio.Event()
    wrapped = InterruptionMiddleware(lambda *asgi: app(*asgi, waits), answer_to)
    scope = {"type": "http", "method": method, "path": "/"}
    task = asyncio.ensure_future(wrapped(scope, receive, send))
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
    ("method", "advice"),
    [("GET", b"ask again when it is back"), ("POST", b"may have carried out the request")],
)
def test_a_cancelled_request_is_answered(method: str, advice: bytes) -> None:
    start, body = asyncio.run(cancelled(wait, method))
    assert start["status"] == 503
    assert advice in body["body"]


def test_an_answer_that_has_begun_is_not_answered_again() -> None:
    start, end = asyncio.run(cancelled(stream, "GET"))
    assert start["status"] == 200
    assert end["type"] == "cancelled"


def test_an_error_of_the_server_is_not_taken_for_its_stop() -> None:
    async def lose(*_: object) -> None:
        raise asyncio.CancelledError

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    async def ask() -> None:
        wrapped = InterruptionMiddleware(lose, answer_to)
        with pytest.raises(asyncio.CancelledError):
            await wrapped({"type": "http", "method": "GET"}, receive, send)

    asyncio.run(ask())
