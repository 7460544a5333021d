"""Plans in threads: one that never ends is given up, named and does not block later ones."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.live import executors
from fairlead.live.executors import PlanTimeoutError, WorkerThreads
from fairlead.live.planning import guards
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model.plan import Plan


def test_a_plan_without_end_is_given_up_and_later_plans_run() -> None:
    end = threading.Event()

    async def compute() -> None:
        workers = WorkerThreads(plan_limit_s=0.05)
        with pytest.raises(PlanTimeoutError, match=r"longer than 0\.05 s") as caught:
            await workers.plan(end.wait)
        assert any("threading" in place for place in caught.value.places)
        assert await workers.plan(lambda: 7) == 7
        end.set()
        workers.close()

    asyncio.run(compute())


def test_no_more_than_three_plans_without_end_run_beside_each_other() -> None:
    end = threading.Event()

    async def compute() -> None:
        workers = WorkerThreads(plan_limit_s=0.05)
        for _ in range(3):
            with pytest.raises(PlanTimeoutError, match="longer than"):
                await workers.plan(end.wait)
        with pytest.raises(PlanTimeoutError, match="still run"):
            await workers.plan(end.wait)
        end.set()
        workers.close()

    asyncio.run(compute())


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(1), KeyError("x"), TimeoutError()])
def test_errors_of_plans_end_neither_the_event_loop_nor_the_wait(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def compute() -> None:
        workers = WorkerThreads()
        with pytest.raises((RuntimeError, KeyError, TimeoutError)):
            await workers.plan(fail)
        workers.close()

    asyncio.run(compute())


def test_jobs_run_on_while_plans_hang_and_the_plug_in_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, hangs = threading.Event(), threading.Event()

    class HangingPlanner(Planner):
        def __init__(self, mechanism: Mechanism[Any]) -> None:
            super().__init__(mechanism)
            inner = self.plan

            def plan(*arguments: Any) -> tuple[Plan, Any]:
                if hangs.is_set():
                    end.wait()
                return inner(*arguments)

            self.plan = plan

    monkeypatch.setattr(guards, "Planner", HangingPlanner)
    monkeypatch.setattr(executors, "_PLAN_LIMIT_S", 3.0)

    async def attack() -> None:
        async with scripted_live(tmp_path, devices="v100=1") as run:
            lease = await run.lease(await run.submit())
            await run.submit()  # waits, so that plans are needed
            hangs.set()
            failures = run.live.rounds.failures
            assert failures.problem == ""
            run.live.rounds._plan_due()
            await eventually(lambda: failures.problem)
            assert failures.problem == "a plan failed in policy 'max-min': PlanTimeoutError"
            assert lease in run.live.leases
            assert not run.live.tasks.broken.is_set()
            end.set()

    asyncio.run(attack())
