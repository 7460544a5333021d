"""How much may be asked: requests a second of a token, renewals of a lease, bytes of a body."""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.errors import FairleadError

_MAX_KEYS = 20_000


class BusyError(FairleadError):
    """Too much was asked in too short a time."""

    code = "busy"

    def __init__(self, message: str, *, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is allowed; the defaults stop programs that ask in a loop, not people."""

    requests_per_s: float = 1000.0
    requests_burst: int = 10_000
    renewals_per_s: float = 1000.0
    body_bytes: int = 4 << 20
    refusals_per_s: float = 10.0
    """of unknown tokens from one address: enough for mistakes, too few for guesses"""


class TokenBuckets:
    """A token bucket for each key: ``burst`` at once, ``rate`` a second in the long run.

    Kept as the time at which a bucket will be full again: one number a key, no timers.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._each_s = 1.0 / rate
        self._room_s = burst * self._each_s
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}

    def take(self, key: Hashable) -> None:
        """Count one request; BusyError says how long to wait when the bucket is empty."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + self._each_s
        over_s = full_at - now - self._room_s
        if over_s > 1e-9:
            wait_s = max(over_s, 1e-3)
            raise BusyError(
                f"too many requests; the next one is welcome in {wait_s:.3g} s", wait_s=wait_s
            )
        if len(self._full_at) >= _MAX_KEYS and key not in self._full_at:
            self._forget(now)
        self._full_at[key] = full_at

    def _forget(self, now: float) -> None:
        """Drop buckets that are full, which is how unknown ones start; else the fullest half."""
        keep = {key: at for key, at in self._full_at.items() if at > now}
        if len(keep) >= _MAX_KEYS:
            emptiest = sorted(keep, key=keep.__getitem__, reverse=True)[: _MAX_KEYS // 2]
            keep = {key: keep[key] for key in emptiest}
        self._full_at = keep


class RateLimiters:
    """The buckets of one server."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests = TokenBuckets(limits.requests_per_s, limits.requests_burst, clock)
        self.renewals = TokenBuckets(limits.renewals_per_s, 2 * limits.renewals_per_s + 1, clock)
        self.refusals = TokenBuckets(limits.refusals_per_s, 20 * limits.refusals_per_s, clock)


def retry_after(error: BusyError) -> str:
    """Return the header's value: whole seconds, at least one."""
    return str(max(math.ceil(error.wait_s), 1))


class BodyLimitMiddleware:
    """Refuses requests with bodies above a size, before they are read into memory."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its bytes as they are read."""
        if scope["type"] != "http" or self._is_small(scope):
            await self._app(scope, receive, send)
            return
        left = self._most

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"the body is above {self._most} bytes")
            return message

        await self._app(scope, counted, send)

    def _is_small(self, scope: Scope) -> bool:
        """Tell whether the length that is announced, which nobody can exceed, is allowed."""
        for name, value in scope["headers"]:
            if name == b"content-length":
                return len(value) < 16 and value.isdigit() and int(value) <= self._most
        return False
