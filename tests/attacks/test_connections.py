"""Clients without a token: slow, large and many requests leave room for others."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from fairlead.server.connections import LimitedProtocol, WarningLimit


class HastyProtocol(LimitedProtocol):
    request_s = 0.5


class CrowdedProtocol(LimitedProtocol):
    max_connections = 20


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(protocol: type[asyncio.Protocol]) -> AsyncIterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=protocol, log_config=None, lifespan="off", timeout_keep_alive=3600
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            server.force_exit = True
            await task


@contextlib.asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def health(port: int) -> bytes:
    async with asyncio.timeout(60), connected(port) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return await reader.read()


@pytest.mark.parametrize(
    "start",
    [b"", b"GET / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"],
)
def test_an_unfinished_request_is_dropped_after_a_while(start: bytes) -> None:
    async def attack() -> None:
        async with (
            serving(HastyProtocol) as port,
            asyncio.timeout(60),
            connected(port) as (reader, writer),
        ):
            writer.write(start)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    asyncio.run(attack())


def test_endless_headers_are_dropped() -> None:
    async def attack() -> None:
        async with (
            serving(LimitedProtocol) as port,
            asyncio.timeout(60),
            connected(port) as (_, writer),
        ):
            writer.write(b"GET / HTTP/1.1\r\n")
            for number in range(1000):
                writer.write(b"x%d: " % number + b"a" * 4096 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)

    with pytest.raises(OSError):  # noqa: PT011  # reset or broken pipe
        asyncio.run(attack())


def test_many_silent_connections_leave_room_for_health_checks() -> None:
    async def attack() -> None:
        async with serving(CrowdedProtocol) as port, contextlib.AsyncExitStack() as stack:
            for _ in range(60):
                await stack.enter_async_context(connected(port))
            assert b"200 OK" in await health(port)

    asyncio.run(attack())


def test_several_requests_over_one_connection_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        loop, passed_s = asyncio.get_running_loop(), 0.0
        time_of_loop = loop.time
        monkeypatch.setattr(loop, "time", lambda: time_of_loop() + passed_s)
        async with serving(LimitedProtocol) as port, connected(port) as (reader, writer):
            for _ in range(4):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)
                assert answer.startswith(b"HTTP/1.1 200")
                passed_s += 2 * LimitedProtocol.request_s  # longer than one request may take
                await asyncio.sleep(0.01)

    asyncio.run(use())


def test_invalid_requests_do_not_flood_the_log() -> None:
    limit = WarningLimit()
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid", None, None)
    assert [limit.filter(record) for _ in range(3)] == [True, False, False]
