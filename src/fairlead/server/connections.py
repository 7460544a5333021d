"""Connections of clients: limits that hold before a request has a token."""

import asyncio
import logging
import resource
import time
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_RESERVED_FILES = 256
"""descriptors kept for the store, the logs and the engine"""
_MIN_CONNECTIONS = 64
_MAX_SCANNED = 1000
"""connections looked at to find one that waits"""
_WARNING_INTERVAL_S = 10.0


def max_connections() -> int:
    """Return the number of connections for which the process has descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(files - _RESERVED_FILES, _MIN_CONNECTIONS)


class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]  # chosen at run time
    """HTTP with limits on the size and duration of a request's headers and on connections.

    A new connection above the limit replaces the one that has been silent longest while it waits
    for a request or the rest of one: health checks and renewals always find room.
    """

    request_s = 30.0
    """time in which a request must arrive, from its first byte or the connection on"""
    header_bytes = 1 << 16
    max_connections = max_connections()
    _by_silence: "dict[LimitedProtocol, None]" = {}  # noqa: RUF012  # shared on purpose
    """open connections, the one silent for the longest first"""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Make room for the connection."""
        super().connection_made(transport)
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        if len(self._by_silence) >= self.max_connections:
            listed = zip(range(_MAX_SCANNED), self._by_silence, strict=False)
            silent = next((other for _, other in listed if other.is_waiting), self)
            silent.drop()
            if silent is self:
                return
        self._by_silence[self] = None
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._by_silence.pop(self, None)
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; drop the connection if its headers are too large."""
        if self._by_silence.pop(self, self) is None:  # now the last
            self._by_silence[self] = None
        super().data_received(data)
        if not self.is_waiting:
            self._received = 0
            self._cancel_timer()
            return
        has_headers = self._has_request and self.cycle.more_body
        self._received = 0 if has_headers else self._received + len(data)
        if self._received > self.header_bytes:
            self.drop()
        elif self._timer is None:
            self._set_timer()

    @property
    def is_waiting(self) -> bool:
        """Whether the connection waits for a request or the rest of one."""
        return not self._has_request or bool(self.cycle.more_body)

    def drop(self) -> None:
        """Close the connection at once."""
        self._by_silence.pop(self, None)
        self._cancel_timer()
        self.transport.abort()

    @property
    def _has_request(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _set_timer(self) -> None:
        self._timer = self.loop.call_later(self.request_s, self._expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.is_waiting:
            self.drop()


class WarningLimit(logging.Filter):
    """Passes one warning about invalid requests in a while: anyone can cause them."""

    def __init__(self) -> None:
        super().__init__()
        self._next_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.levelno != logging.WARNING:
            return True
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + _WARNING_INTERVAL_S
        return True
