"""Live changes of rate limits: they hold at once and after restarts, and are audited."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.server.access.live_limits import LiveLimits
from fairlead.server.access.rate_limits import RateLimitedError, RateLimiters, RateLimits

START = RateLimits(requests_per_s=1000.0, requests_burst=1000)


def burst(limiters: RateLimiters) -> int:
    """Return the requests of one token that pass at once."""
    for number in range(2000):
        try:
            limiters.requests.take("token")
        except RateLimitedError:
            return number
    raise AssertionError("no limit")


@pytest.mark.parametrize(
    ("restarted_with", "limits_after"),
    [(START, [10, 10]), (RateLimits(requests_burst=500), [500, 1000])],
)
def test_a_live_change_holds_until_the_server_starts_with_other_settings(
    tmp_path: Path, restarted_with: RateLimits, limits_after: list[int]
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            limiters = RateLimiters(START, lambda: 0.0)
            limits = LiveLimits(site.live, limiters)
            assert burst(limiters) == 1000
            await limits.set({"requests_per_s": 1.0, "requests_burst": 10}, "operator")
            assert burst(limiters) == 10
            (entry,) = site.live.store.audit_trail()
            assert (entry["action"], entry["changes"]["requests_burst"]) == (
                "limits",
                {"old": 1000, "new": 10},
            )
        shown = []
        for settings in (restarted_with, START):
            async with scripted_live(tmp_path) as site:
                limiters = RateLimiters(settings, lambda: 0.0)
                LiveLimits(site.live, limiters).restore()
                await site.live.write([])
                shown.append(burst(limiters))
        assert shown == limits_after

    asyncio.run(scene())
