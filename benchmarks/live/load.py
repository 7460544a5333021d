"""Load generator for an HTTP server with a few connections and little CPU time."""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    method: str
    path: str
    token: str
    body: object = None


class Connection:
    """Persistent connection for one request at a time."""

    def __init__(self, url: str) -> None:
        self._at = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, ask: Ask) -> tuple[float, bytes]:
        """Return the latency in seconds and the body of the answer; raise unless successful."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._at.hostname, self._at.port, limit=1 << 24
            )
        reader, writer = self._streams
        body = b"" if ask.body is None else json.dumps(ask.body).encode()
        head = (
            f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {self._at.netloc}\r\n"
            f"Authorization: Bearer {ask.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(head.encode() + body)
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(h[15:]) for h in headers if h.lower().startswith(b"content-length"))
        answer = await reader.readexactly(length)
        took = time.perf_counter() - began
        if int(first.split()[1]) >= 400:
            raise RuntimeError(f"{ask.method} {ask.path}: {first!r} {answer[:300]!r}")
        return took, answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def all_of(url: str, asks: Iterable[Ask], *, connections: int) -> list[float]:
    """Make all requests as fast as possible over some connections; return their latencies."""
    return asyncio.run(_all_of(url, iter(asks), connections))


async def _all_of(url: str, asks: Iterator[Ask], connections: int) -> list[float]:
    times_s: list[float] = []

    async def work() -> None:
        connection = Connection(url)
        for ask in asks:
            times_s.append((await connection.ask(ask))[0])
        connection.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return times_s


def paced(url: str, asks: Iterable[Ask], *, per_s: float, seconds: float) -> list[float]:
    """Make requests at a steady rate; return their latencies.

    The latency counts from the due time of a request, so that a stalled server is not measured by
    the few requests in flight only.
    """
    return asyncio.run(_paced(url, iter(asks), per_s, seconds))


async def _paced(url: str, asks: Iterator[Ask], per_s: float, seconds: float) -> list[float]:
    times_s: list[float] = []
    began, free = time.perf_counter(), [Connection(url)]

    async def send(ask: Ask, due: float) -> None:
        connection = free.pop() if free else Connection(url)
        await connection.ask(ask)
        times_s.append(time.perf_counter() - due)
        free.append(connection)

    waiting = []
    for i in range(int(per_s * seconds)):
        due = began + i / per_s
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        waiting.append(asyncio.create_task(send(next(asks), due)))
    await asyncio.gather(*waiting)
    for connection in free:
        connection.close()
    return times_s
