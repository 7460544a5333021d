"""Warnings about lost work: in the event stream, the log and the message of the job."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.engines.base import Saved
from fairlead.live.leases import lost_work
from fairlead.model.lease_outcome import LeaseOutcome
from fairlead.server.api.views import job_view


@pytest.mark.parametrize(
    ("min_lost_s", "suspended", "warned"),
    [(1e-9, False, True), (3600.0, False, False), (1e-9, True, False)],
)
def test_the_end_of_a_lease_without_a_checkpoint_warns_unless_its_process_is_suspended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    min_lost_s: float,
    suspended: bool,
    warned: bool,
) -> None:
    monkeypatch.setattr(lost_work, "_MIN_LOST_S", min_lost_s)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            notices: asyncio.Queue[dict[str, object]] = asyncio.Queue()
            site.live.stream.subscribers.add(notices)
            job = await site.submit()
            lease = await site.lease(job)
            with capture_logs() as logged:
                ending: LeaseOutcome = "left" if suspended else "lost"
                site.engine.end(lease, ending, parked=suspended, suspended=suspended)
                await site.recorded(lease)
            seen: list[Any] = [notices.get_nowait() for _ in range(notices.qsize())]
            published = [notice for notice in seen if notice["event"] == "job.work_lost"]
            lines = [line for line in logged if line["event"] == "job.work_lost"]
            view = job_view(site.live, 0)
            assert ("work lost: no checkpoint" in view.message) == warned
            assert len(published) == len(lines) == warned
            assert (view.lost_s > 0) != suspended
            for notice in (*published, *lines):
                assert (notice["job"], notice["lease"]) == (job, lease)
                assert notice["lost_s"] == pytest.approx(view.lost_s, abs=0.1)
            assert [line["log_level"] for line in lines] == ["warning"] * warned

    asyncio.run(scene())


def test_the_work_of_a_suspended_process_is_lost_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_work, "_MIN_LOST_S", 1e-9)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit()
            lease = await site.lease(job)
            site.engine.end(lease, "left", parked=True, suspended=True)
            await site.recorded(lease)
            for report in (Saved(lease + 1, job, None), Saved(lease, job, None)):
                assert job_view(site.live, 0).lost_s == 0
                site.live._lease_outcomes.steps_saved(report)
            await eventually(lambda: "work lost" in job_view(site.live, 0).message)
            lost_s = job_view(site.live, 0).lost_s
            assert lost_s > 0
            site.live._lease_outcomes.count_saved_steps(lambda _: str(tmp_path))  # none is left
            await site.submit()
            assert job_view(site.live, 0).lost_s == lost_s

    asyncio.run(scene())
