"""A first week with Fairlead as its page tells it: every command, and the jobs after each day."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.docs.console import sections
from tests.e2e.docs.page import Page

from fairlead.client import Client
from fairlead.submitted_job import SubmittedJob

WEEK = "docs/start/first-week.md"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    page = Page(tmp_path)
    yield page
    page.close()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_first_week_goes_as_its_page_says(page: Page) -> None:
    days = [blocks for blocks in sections(WEEK) if blocks]
    assert len(days) == len(CHECKS)
    for blocks, check in zip(days, CHECKS, strict=True):
        for block in blocks:
            page.run_block(WEEK, block)
        url = json.loads((page.data / "server.json").read_text())["url"]
        with closing(Client(url, (page.data / "admin.token").read_text().strip())) as client:
            check(client)


def finished(client: Client, *ids: str) -> list[SubmittedJob]:
    """Return jobs that have finished with exactly their steps."""
    jobs = [client.job(job_id) for job_id in ids]
    for job in jobs:
        assert (job["state"], job["steps_done"]) == ("finished", job["total_steps"]), job
    return jobs


def monday(client: Client) -> None:
    (first,) = finished(client, "j1")
    assert first["metrics"]["loss"] > 0.0


def tuesday(client: Client) -> None:
    sweep = finished(client, "j2", "j3", "j4")
    assert len({job["metrics"]["loss"] for job in sweep}) == 3


def wednesday(client: Client) -> None:
    broken = client.job("j5")
    assert (broken["state"], broken["exit_codes"]) == ("failed", [1])
    assert broken["log_tail"][-1] == "no such file: data/train.bin"


def thursday(client: Client) -> None:
    assert {row["tenant"] for row in client.get("/v1/shares")} >= {"default", "vision"}
    untouched(client)


def friday(client: Client) -> None:
    finished(client, "j7", "j8")


def saturday(client: Client) -> None:
    untouched(client)


def untouched(client: Client) -> None:
    """Check that the long job has not failed or ended."""
    job = client.job("j6")
    assert job["state"] in ("queued", "running"), job
    assert job["failures"] == 0, job


def sunday(client: Client) -> None:
    for check in (monday, tuesday, wednesday, friday):
        check(client)
    (last,) = finished(client, "j9")
    assert last["failures"] == 0, last
    long = client.job("j6")
    assert (long["state"], long["failures"]) == ("cancelled", 0), long
    assert long["steps_done"] > 0, "it has not resumed from its checkpoint"


CHECKS: tuple[Callable[[Client], None], ...] = (
    monday,
    tuesday,
    wednesday,
    thursday,
    friday,
    saturday,
    sunday,
)
