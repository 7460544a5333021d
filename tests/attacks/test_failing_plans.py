"""A job that makes every plan fail: the others run, and it is named."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live import rounds
from fairlead.live.driver import Live
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.server.access.tokens import Tokens
from fairlead.server.api.app import make_app
from fairlead.server.api.metrics import render

BREAKS = 13.0
"""weight with which a job makes plans fail"""


class BreakingPlanner(Planner):
    """Fails on a profile with a certain weight, even if its jobs have ended."""

    def __init__(self, mechanism: Mechanism[Any]) -> None:
        super().__init__(mechanism)
        inner = self.plan

        def plan(snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
            if (snapshot.profiles.weight == BREAKS).any():
                raise ArithmeticError("singular")
            return inner(snapshot, memory)

        self.plan = plan


@pytest.fixture(autouse=True)
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "Planner", BreakingPlanner)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("policy", ["max-min", "tenant-max-min", "fifo"])
def test_other_jobs_run_and_the_breaking_job_is_named(tmp_path: Path, policy: str) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path, policy=policy) as run:
            bad = await run.submit(weight=BREAKS, tenant="attacker")
            before = [await run.submit(tenant="a"), await run.submit(tenant="b")]
            for job in before:
                await run.lease(job)
            after = await run.submit(tenant="attacker")
            await run.lease(after)
            assert "plan" in run.live.messages[bad]
            assert before[0] not in run.live.messages
            assert run.live.rounds.plans_failed > 0
            assert not run.live.rounds.failing

    asyncio.run(attack())


def test_a_cancelled_job_breaks_no_plan(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            bad = await run.submit(weight=BREAKS)
            await run.live.jobs.cancel(bad, "attacker")
            await run.lease(await run.submit())

    asyncio.run(attack())


def test_many_breaking_jobs_stop_only_their_tenant(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            for number in range(100):
                await run.submit(weight=BREAKS, tenant="attacker", memory_gib=1 + number / 100)
            await run.lease(await run.submit(tenant="a"))

    asyncio.run(attack())


def test_plans_that_always_fail_turn_readyz_red_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_PLAN_RETRY_S", 0.05)

    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            assert await ready(run.live) == (200, "ok\n")
            await run.submit(weight=BREAKS)
            await until(lambda: run.live.rounds.failing)
            status, text = await ready(run.live)
            assert status == 503
            assert "plan" in text
            assert b"fairlead_plans_failed" in render(run.live)

    asyncio.run(attack())


async def ready(live: Live) -> tuple[int, str]:
    """Return status and body of ``GET /readyz``."""
    sent: list[Any] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/readyz", "raw_path": b"/readyz", "query_string": b"",
        "headers": [], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await make_app(live, Tokens({}, b"x" * 32))(scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()
