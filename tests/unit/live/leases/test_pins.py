"""Leases that no plan may preempt now."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.pins import LeasePins
from fairlead.live.leases.renewal import Renewal


def pins_of(site: ScriptedLive) -> LeasePins:
    live = site.live
    return LeasePins(live.queries, live._registry, live.specs, live.config.scheduling.mechanism)


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
            assert pins_of(site).keeps(lease, lease.launched_at + 100.0) == pinned

    asyncio.run(scene())


@pytest.mark.parametrize(("start_s", "limit_s"), [(2.0, 60.0), (20.0, 200.0), (100.0, 600.0)])
def test_a_job_that_hangs_at_a_later_start_is_protected_for_ten_times_its_longest_start(
    tmp_path: Path, start_s: float, limit_s: float
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            pins, job = pins_of(site), await site.submit(preempt="yes")

            async def next_lease(renewal: Renewal) -> OpenLease:
                lease = site.live.leases[await site.lease(job)]
                site.live.renew(lease.number, renewal)
                return lease

            def keeps(lease: OpenLease, age_s: float) -> bool:
                return pins.keeps(lease, lease.launched_at + age_s)

            async def preempt(lease: OpenLease) -> None:
                site.engine.end(lease.number, "left", steps=1.0)
                await site.recorded(lease.number)

            hangs = Renewal(rank=0, started=0, steps=0.0)
            lease = await next_lease(hangs)
            assert [keeps(lease, age_s) for age_s in (599.0, 601.0)] == [True, False]
            lease.first_step_at = lease.launched_at + start_s
            assert not keeps(lease, 1000.0)
            await preempt(lease)
            lease = await next_lease(hangs)
            for _ in range(2):
                ages_s = (limit_s - 1.0, limit_s + 1.0, limit_s + 2.0)
                assert [keeps(lease, age_s) for age_s in ages_s] == [True, False, False]
                await preempt(lease)  # its starts may have become slow: the next has all the time
                lease = await next_lease(hangs)
                assert [keeps(lease, age_s) for age_s in (599.0, 601.0, 602.0)] == [
                    *(True, False, False)
                ]
                await preempt(lease)
                lease = await next_lease(hangs)

    asyncio.run(scene())
