"""A job that makes every plan fail: the others run, and it is named."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.core.event_log import decode_event
from fairlead.core.saved_state import load_state, save_state, state_bytes
from fairlead.live import rounds
from fairlead.live.driver import Live
from fairlead.live.planning import guards
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model import events as ev
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.server.access.tokens import Tokens
from fairlead.server.api.app import make_app
from fairlead.server.api.metrics import render
from fairlead.server.api.views import LEFT_OUT, job_row
from fairlead.store import Audit

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


class FailingPlanner(Planner):
    """Fails on every snapshot."""

    def __init__(self, mechanism: Mechanism[Any]) -> None:
        super().__init__(mechanism)

        def plan(*_: Any) -> tuple[Plan, Any]:
            raise ArithmeticError("singular")

        self.plan = plan


@pytest.fixture(autouse=True)
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "Planner", BreakingPlanner)


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
            assert message(run.live, bad) == LEFT_OUT
            assert message(run.live, before[0]) == ""
            failures = run.live.rounds.failures
            assert failures.total > 0
            assert not failures.failing

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


def test_jobs_of_a_lone_tenant_do_not_turn_readyz_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_PLAN_RETRY_S", 0.02)

    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            assert await ready(run.live) == (200, "ok\n")
            bad = await run.submit(weight=BREAKS)
            # Left out of plans, and tried again after longer and longer waits.
            await eventually(lambda: run.live.rounds.failures.total >= 4)
            status, text = await ready(run.live)
            assert status == 200
            assert text.startswith("degraded: jobs left out of plans: 1")
            metrics = render(run.live)
            assert b"fairlead_jobs_left_out 1.0" in metrics
            assert b'fairlead_plans_failed_total{plugin="fairlead:max-min"}' in metrics
            # Two plans may be made at once and fail both; later ones leave the job out.
            seen = run.live.rounds
            await eventually(lambda: len(seen.decisions_s) >= 2 * seen.failures.total)

            after = await run.submit(tenant="b")
            await run.lease(after)
            assert message(run.live, bad) == LEFT_OUT

            await run.live.jobs.cancel(bad, "attacker")
            await eventually(lambda: run.live.queries.left_out_count == 0)
            assert b"fairlead_jobs_left_out 0.0" in render(run.live)

    asyncio.run(attack())


def test_plans_that_fail_for_every_job_turn_readyz_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_PLAN_RETRY_S", 0.02)
    monkeypatch.setattr(guards, "Planner", FailingPlanner)

    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            await run.submit()
            await eventually(lambda: run.live.rounds.failures.failing)
            status, text = await ready(run.live)
            assert status == 503
            assert text == "plans fail: a plan failed in policy 'max-min': ArithmeticError\n"
            assert run.live.queries.left_out_count == 0

            monkeypatch.setattr(guards, "Planner", Planner)
            await run.lease("j1")
            assert (await ready(run.live))[0] == 200

    asyncio.run(attack())


def test_a_job_left_out_is_not_started_on_idle_devices(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path, devices="v100=2") as run:
            bad = await run.submit(weight=BREAKS, tenant="attacker")
            await eventually(lambda: run.live.queries.left_out_count == 1)
            await run.lease(await run.submit(tenant="a"))
            lease = await run.lease(await run.submit(tenant="a"))
            run.engine.end(lease, "finished")  # an idle device, and only one job that waits
            await eventually(lambda: lease not in run.live.leases)
            await run.live.write([])
            assert run.live.queries.left_out_count == 1
            assert bad not in run.engine.open.values()

    asyncio.run(attack())


def test_a_job_left_out_is_scheduled_once_its_numbers_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_PLAN_RETRY_S", 0.1)

    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            bad = await run.submit(weight=BREAKS)
            await eventually(lambda: run.live.queries.left_out_count == 1)
            job = replace(run.live.queries.job(0), weight=2.0)
            audit = Audit(run.live.clock.now(), "tester", "change", bad)
            await run.live.jobs.change(lambda at: ev.JobChanged(at, job), audit)
            await run.lease(bad)
            assert run.live.queries.left_out_count == 0

    asyncio.run(attack())


def test_saved_states_and_logged_plans_keep_the_jobs_left_out(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            await run.submit(weight=BREAKS)
            await eventually(lambda: run.live.queries.left_out_count == 1)
            saved, wanted = save_state(run.live.scheduler), state_bytes(run.live.scheduler)
            logged = [
                decode_event(event.body, type(run.live.scheduler.memory))
                for event in run.live.store.load_events(0)
            ]
            plans = [event for event in logged if isinstance(event, ev.PlanReady)]
            assert [plan.left_out for plan in plans] == [(0,)] * len(plans)
        async with scripted_live(tmp_path / "other") as run:
            load_state(run.live.scheduler, saved)
            assert run.live.scheduler.left_out == (0,)
            assert state_bytes(run.live.scheduler) == wanted

    (tmp_path / "other").mkdir()
    asyncio.run(attack())


def message(live: Live, job: str) -> str:
    """Return the message that users see about a job."""
    return str(job_row(live, live.queries.job_number(job))["message"])


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
