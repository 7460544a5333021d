"""Leases that no plan may preempt now."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.leases.pins import LeasePins


@pytest.mark.parametrize(("pattern", "pinned"), [(r"step (\d+)", False), (None, True)])
def test_a_job_that_has_printed_steps_before_is_not_loading_a_checkpoint(
    tmp_path: Path, pattern: str | None, pinned: bool
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(preempt="yes", progress_pattern=pattern)
            first = await site.lease(job)
            site.engine.end(first, "left", steps=1e-6)
            await site.recorded(first)
            lease = site.live.leases[await site.lease(job)]
            live = site.live
            specs, mechanism = live.specs, live.config.scheduling.mechanism
            pins = LeasePins(live.queries, live._registry, specs, mechanism)
            assert pins.keeps(lease, lease.launched_at + 100.0) == pinned

    asyncio.run(scene())
