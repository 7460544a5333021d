"""Rate limits per token, lease and address, and the maximum size of a request."""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.errors import FairleadError

_MAX_KEYS = 20_000
_MAX_DEBT_S = 30.0
"""longest that requests wait for one that counted as many"""


class RateLimitedError(FairleadError):
    """A client exceeded a rate limit."""

    code = "busy"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"rate limit exceeded; retry in {wait_s:.3g} s")
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits of one server; the defaults stop programs in a tight loop, not people."""

    requests_per_s: float = 1000.0
    requests_burst: int = 10_000
    renewals_per_s: float = 1000.0
    body_bytes: int = 4 << 20
    failed_logins_per_s: float = 10.0
    """invalid tokens per address: enough for mistakes, too few for guesses"""


class TokenBuckets:
    """A token bucket for each key: ``burst`` at once, ``rate`` per second in the long run.

    A bucket is stored as the time at which it will be full again: one number per key, no timers.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._each_s = 1.0 / rate
        self._room_s = burst * self._each_s
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}

    def take(self, key: Hashable) -> None:
        """Count one request; raise RateLimitedError if the bucket is empty."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + self._each_s
        over_s = full_at - now - self._room_s
        if over_s > 1e-9:
            raise RateLimitedError(max(over_s, 1e-3))
        if len(self._full_at) >= _MAX_KEYS and key not in self._full_at:
            self._evict(now)
        self._full_at[key] = full_at

    def charge(self, key: Hashable, count: int) -> None:
        """Count more requests, though the bucket may be empty: later ones wait for them.

        They wait no longer than clients retry.
        """
        if count > 0:
            now = self._clock()
            full_at = max(self._full_at.get(key, now), now) + count * self._each_s
            self._full_at[key] = min(full_at, now + self._room_s + _MAX_DEBT_S)

    def _evict(self, now: float) -> None:
        """Drop the full buckets, which equal unknown ones; if that is not enough, half of all.

        The emptiest half stays: it belongs to the clients that the limit is meant for.
        """
        keep = {key: at for key, at in self._full_at.items() if at > now}
        if len(keep) >= _MAX_KEYS:
            emptiest = sorted(keep, key=keep.__getitem__, reverse=True)[: _MAX_KEYS // 2]
            keep = {key: keep[key] for key in emptiest}
        self._full_at = keep


@dataclass(frozen=True, slots=True)
class LimitsChange:
    """An operator's change of the limits of a running server."""

    limits: dict[str, Any]
    start: dict[str, Any]
    """limits of the start-up settings at that time"""
    at: float
    by: str
    """name of the operator"""


class RateLimiters:
    """The buckets of one server, by the limits in force."""

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.start = limits
        """the limits of the start-up settings"""
        self.use(limits, None)
        # Each node of a gang fetches the secrets once per lease.
        self.secrets = TokenBuckets(10.0, 1000.0, clock)
        failed_per_s = limits.failed_logins_per_s
        self.failed_logins = TokenBuckets(failed_per_s, 20 * failed_per_s, clock)

    def use(self, limits: RateLimits, change: LimitsChange | None) -> None:
        """Limit requests and renewals by other limits, with full buckets."""
        self.limits, self.change = limits, change
        rate = limits.renewals_per_s
        self.requests = TokenBuckets(limits.requests_per_s, limits.requests_burst, self._clock)
        self.renewals = TokenBuckets(rate, 2 * rate + 1, self._clock)


def retry_after(error: RateLimitedError) -> str:
    """Return the value of the header ``Retry-After``: whole seconds, at least one."""
    return str(max(math.ceil(error.wait_s), 1))


class BodyLimitMiddleware:
    """Refuses requests whose bodies exceed a size, before they are read into memory."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count its bytes as they are read."""
        if scope["type"] != "http" or self._is_small(scope):
            await self._app(scope, receive, send)
            return
        left = self._max_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"request body above {self._max_bytes} bytes")
            return message

        await self._app(scope, counted, send)

    def _is_small(self, scope: Scope) -> bool:
        """Return whether the announced length, which HTTP servers enforce, is within the limit."""
        for name, value in scope["headers"]:
            if name == b"content-length":
                return len(value) < 16 and value.isdigit() and int(value) <= self._max_bytes
        return False
