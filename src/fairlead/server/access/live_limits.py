"""Rate limits in force: those of the start-up settings, or of an operator's live change.

As with the policy, a live change outlives restarts with the same start-up settings, and a start
with other settings overrules it.
"""

import json
from dataclasses import asdict, replace
from typing import Any

import structlog

from fairlead.live.driver import Live
from fairlead.server.access.rate_limits import LimitsChange, RateLimiters, RateLimits
from fairlead.store import Audit, Put, Remove, User
from fairlead.store.audit import changed_values, name_of

log = structlog.get_logger("fairlead.server")

_KIND, _ID = "limits", "live"
_CHANGEABLE = ("requests_per_s", "requests_burst", "renewals_per_s")
"""limits that can change while the server runs"""


class LiveLimits:
    """Applies the last decision about the rate limits."""

    def __init__(self, live: Live, limiters: RateLimiters) -> None:
        self._live, self.limiters = live, limiters

    def restore(self) -> None:
        """Use the limits of a live change, unless the server has other start-up settings."""
        text = self._live.store.document(_KIND, _ID)
        if text is None:
            return
        start = self.limiters.start
        try:
            change = LimitsChange(**json.loads(text))
        except (ValueError, TypeError) as error:
            log.warning("limits.live_change_damaged", error=str(error))
            return
        if change.start != _values(start):
            log.warning("limits.start_settings_win", by=change.by, changed_at=change.at)
            self._live.inbox.post(lambda _: [], [Remove(_KIND, _ID)])
            return
        log.info("limits.live_change_kept", by=change.by, changed_at=change.at, **change.limits)
        self.limiters.use(replace(start, **change.limits), change)

    async def set(self, changes: dict[str, Any], user: User) -> None:
        """Change some limits; they hold once the change is persisted."""
        before, at = self.limiters.limits, self._live.clock.now()
        limits = replace(before, **changes)
        if limits == before:
            return
        start = _values(self.limiters.start)
        change = LimitsChange(_values(limits), start, at, name_of(user))
        values = changed_values(before, limits)
        audit = Audit(at, user, "limits", "rate limits", changes=values)
        await self._live.write([Put(_KIND, _ID, json.dumps(asdict(change))), audit])
        log.info("limits.changed", by=change.by, **change.limits)
        self.limiters.use(limits, change)


def _values(limits: RateLimits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in _CHANGEABLE}
