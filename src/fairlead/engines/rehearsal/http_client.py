"""A minimal asynchronous HTTP connection for JSON, cheap enough for thousands of members."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class JsonConnection:
    """Posts to one path of one server; stays open between posts."""

    def __init__(self, url: str, path: str, token: str) -> None:
        self._url = urlsplit(url)
        self._head = (
            f"POST {self._url.path.rstrip('/')}{path} HTTP/1.1\r\n"
            f"Host: {self._url.netloc}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode("ascii")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        """Return status and content of the answer; OSError without one."""
        text = json.dumps(body, separators=(",", ":")).encode()
        was_open = self._streams is not None
        try:
            return await self._exchange(text)
        except (OSError, EOFError):
            self.close()
            if not was_open:
                raise OSError("no answer") from None
        try:  # the server may have closed the idle connection
            return await self._exchange(text)
        except (OSError, EOFError):
            self.close()
            raise OSError("no answer") from None

    async def _exchange(self, text: bytes) -> tuple[int, dict[str, Any]]:
        if self._streams is None:
            context = ssl.create_default_context() if self._url.scheme == "https" else None
            host, port = self._url.hostname, self._url.port
            self._streams = await asyncio.open_connection(host, port, ssl=context)
        reader, writer = self._streams
        writer.write(b"%s%d\r\n\r\n%s" % (self._head, len(text), text))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        content = json.loads(await reader.readexactly(length))
        return status, content if isinstance(content, dict) else {}

    def close(self) -> None:
        """Close the connection; the next post opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
