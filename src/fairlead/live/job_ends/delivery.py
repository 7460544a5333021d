"""Delivery of one notification: an HTTP POST that follows no redirect and ends in time."""

import asyncio
import ssl
from collections.abc import Mapping

from fairlead.live.job_ends.urls import Target
from fairlead.version import __version__

_TIMEOUT_S = 10.0
"""seconds for the whole request, however slowly the other side answers"""


class RefusedError(Exception):
    """The other side will never accept the notification."""


async def post(target: Target, headers: Mapping[str, str], body: bytes) -> None:
    """Post a body; OSError if it may be retried, RefusedError if not."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            status = await _status_of(target, headers, body)
    except TimeoutError:
        raise OSError(f"no answer within {_TIMEOUT_S:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise OSError(f"not an HTTP answer: {error}") from None
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise RefusedError(f"status {status}: redirects are not followed")
    if 400 <= status < 500 and status not in (408, 429):
        raise RefusedError(f"status {status}")
    raise OSError(f"status {status}")


async def _status_of(target: Target, headers: Mapping[str, str], body: bytes) -> int:
    context = None
    if target.scheme == "https":
        context = await asyncio.to_thread(ssl.create_default_context)
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    try:
        writer.write(_request(target, headers, len(body)) + body)
        await writer.drain()
        line = await reader.readuntil(b"\n")
        return int(line.split(b" ", 2)[1])
    except IndexError:
        raise ValueError("no status") from None
    finally:
        writer.transport.abort()


def _request(target: Target, headers: Mapping[str, str], length: int) -> bytes:
    path = target.path + (f"?{target.query}" if target.query else "")
    lines = [f"POST {path} HTTP/1.1", f"Host: {target.site.partition('://')[2]}"]
    lines += [f"User-Agent: fairlead/{__version__}", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
