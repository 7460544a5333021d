"""Denied attempts in the audit trail, limited so that nobody can flood it."""

from fastapi import Request

from fairlead.live.driver import Live
from fairlead.server.access.rate_limits import RateLimitedError, TokenBuckets
from fairlead.server.access.tokens import AuthError, Principal
from fairlead.server.logs import redact
from fairlead.store import Actor, Audit

_PER_SOURCE, _PER_SOURCE_BURST = 0.1, 10
_TOTAL, _TOTAL_BURST = 1.0, 100
_MAX_TEXT = 200


class DeniedAttempts:
    """Records denied requests: at most one in 10 s for an address or a principal, after a burst.

    An entry tells how many attempts before it were not recorded.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._sources = TokenBuckets(_PER_SOURCE, _PER_SOURCE_BURST)
        self._total = TokenBuckets(_TOTAL, _TOTAL_BURST)
        self._unrecorded = 0

    def record(self, request: Request, error: AuthError) -> None:
        """Append an entry without waiting for it, unless too many came before."""
        principal: Principal | None = getattr(request.state, "asking", None)
        address = request.client.host if request.client else ""
        try:
            self._sources.take(principal.id if principal else address)
            self._total.take("all")
        except RateLimitedError:
            self._unrecorded += 1
            return
        detail = f"{error} (from {address})"
        if self._unrecorded:
            detail += f"; {self._unrecorded} more attempts were not recorded"
        self._unrecorded = 0
        actor = principal.actor if principal else Actor("", "", "")
        subject = _printable(f"{request.method} {request.scope['path']}")
        entry = Audit(self._live.clock.now(), actor, "denied", subject, _printable(detail, 1000))
        self._live.inbox.post(lambda _: [], [entry])


def _printable(text: str, length: int = _MAX_TEXT) -> str:
    """Return text that every database stores: no control characters, no secrets, not too long."""
    return "".join(c if c.isprintable() else "?" for c in redact(text)[:length])
