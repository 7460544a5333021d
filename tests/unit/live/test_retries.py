"""Jobs that wait after a failure, and what is shown of them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.live.leases import outcomes as ending
from fairlead.server.api.metrics import render
from fairlead.server.api.schemas import State
from fairlead.server.api.views import job_view, listed


def state(site: ScriptedLive, job: str) -> str:
    return job_view(site.live, site.live.scheduler.jobs.number[job]).state


def in_state(site: ScriptedLive, wanted: State) -> list[str]:
    jobs = site.live.scheduler.jobs
    everybody = np.ones(len(jobs.tenants), dtype=bool)
    found = listed(site.live, everybody, wanted, 0)
    return [jobs.ids[number] for number in found.tolist()]


def test_a_job_that_waits_after_a_failure_is_queued_and_only_users_suspend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_FIRST_WAIT_S", 60.0)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            broken, held = await site.submit(), await site.submit()
            await site.fail(broken)
            await site.live.hold(held, "user")
            assert (state(site, broken), state(site, held)) == ("queued", "suspended")
            assert in_state(site, "queued") == [broken]
            assert in_state(site, "suspended") == [held]
            assert b"fairlead_jobs_queued 1.0" in render(site.live)
            await site.live.hold(broken, "user")
            assert in_state(site, "suspended") == [broken, held]

    asyncio.run(scene())


@pytest.mark.parametrize("by_hand", ["release", "hold and release"])
def test_a_wait_is_not_cut_short_by_an_earlier_one(
    by_hand: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_FIRST_WAIT_S", 0.15)  # the first wait is 0.3 s, the second 0.6

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()
            await site.fail(job)
            if by_hand != "release":
                await site.live.hold(job, "user")
            await site.live.release(job, "user")
            await site.fail(job)
            failed_at = asyncio.get_running_loop().time()
            await site.lease(job)
            assert asyncio.get_running_loop().time() - failed_at > 0.5

    asyncio.run(scene())


def test_a_job_cancelled_while_it_waits_leaves_no_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_FIRST_WAIT_S", 60.0)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()
            await site.fail(job)
            timers = site.live._ends._timers
            assert [*timers] == [job]
            await site.live.cancel(job, "user")
            assert not timers

    asyncio.run(scene())


def test_a_message_goes_once_a_later_lease_has_made_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_FIRST_WAIT_S", 0.01)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()

            def message() -> str:
                return job_view(site.live, 0).message

            await site.fail(job)
            lease = await site.lease(job)
            told = {"rank": 0, "started": 0, "steps": 0.0}
            site.live.renew(lease, {**told})
            assert message() == "it broke"
            site.live.renew(lease, {**told, "started": 1, "steps": 1.0, "first_step_s": 0.1})
            assert message() == ""

    asyncio.run(scene())
