"""Retry backoff of failed jobs, and the state shown for them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.live.leases import outcomes
from fairlead.live.leases.renewal import Renewal
from fairlead.server.api.job_messages import State
from fairlead.server.api.metrics import render
from fairlead.server.api.views import job_view, listed


def state(site: ScriptedLive, job: str) -> str:
    return job_view(site.live, site.live.scheduler.jobs.number[job]).state


def in_state(site: ScriptedLive, wanted: State) -> list[str]:
    jobs = site.live.scheduler.jobs
    all_tenants = np.ones(len(jobs.tenants), dtype=bool)
    numbers = listed(site.live, all_tenants, wanted, 0)
    return [jobs.ids[number] for number in numbers.tolist()]


def test_job_in_backoff_is_queued_and_only_users_suspend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FIRST_BACKOFF_S", 60.0)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            failing, suspended = await site.submit(), await site.submit()
            await site.fail(failing)
            await site.live.jobs.suspend(suspended, "user")
            assert (state(site, failing), state(site, suspended)) == ("queued", "suspended")
            assert in_state(site, "queued") == [failing]
            assert in_state(site, "suspended") == [suspended]
            assert b"fairlead_jobs_queued 1.0" in render(site.live)
            await site.live.jobs.suspend(failing, "user")
            assert in_state(site, "suspended") == [failing, suspended]

    asyncio.run(scene())


@pytest.mark.parametrize("by_user", ["resume", "suspend and resume"])
def test_backoff_is_not_cut_short_by_an_earlier_one(
    by_user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FIRST_BACKOFF_S", 0.15)  # first 0.3 s, then 0.6 s

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()
            await site.fail(job)
            if by_user != "resume":
                await site.live.jobs.suspend(job, "user")
            await site.live.jobs.resume(job, "user")
            lease = await site.lease(job)
            failed_at = asyncio.get_running_loop().time()
            site.engine.end(lease, "failed", "it broke")
            await site.recorded(lease)
            await site.lease(job)
            assert asyncio.get_running_loop().time() - failed_at > 0.5

    asyncio.run(scene())


def test_job_cancelled_in_backoff_leaves_no_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FIRST_BACKOFF_S", 60.0)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()
            await site.fail(job)
            timers = site.live._lease_outcomes._timers
            assert [*timers] == [job]
            await site.live.jobs.cancel(job, "user")
            assert not timers

    asyncio.run(scene())


def test_message_disappears_once_a_later_lease_has_made_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_FIRST_BACKOFF_S", 0.01)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()

            def message() -> str:
                return job_view(site.live, 0).message

            await site.fail(job)
            lease = await site.lease(job)
            site.live.renew(lease, Renewal(rank=0, started=0, steps=0.0))
            assert message() == "it broke"
            site.live.renew(lease, Renewal(rank=0, started=1, steps=1.0, first_step_s=0.1))
            assert message() == ""

    asyncio.run(scene())
