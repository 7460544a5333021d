"""Requests for plans, and plans in threads: one that never ends blocks no later ones."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.core import Scheduler
from fairlead.live import executors
from fairlead.live.clock import Clock
from fairlead.live.executors import PlanTimeoutError, WorkerThreads
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.planning import guards
from fairlead.live.rounds import RoundTimers
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.factory import create_live_mechanism, plug_ins
from fairlead.mechanisms.planner import Planner
from fairlead.model.cluster import Cluster, Node
from fairlead.model.commands import ComputePlan, SetTimer
from fairlead.model.events import Event, JobSubmitted, PlanDue
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.speeds.table import SpeedKey, SpeedTable


def test_a_plan_without_end_is_given_up_and_later_plans_run() -> None:
    end = threading.Event()

    async def compute() -> None:
        workers = WorkerThreads(plan_limit_s=0.05)
        with pytest.raises(PlanTimeoutError, match=r"longer than 0\.05 s") as caught:
            await workers.plan(end.wait)
        assert any("threading" in place for place in caught.value.places)
        workers._plan_limit_s = 90.0
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


def test_a_plan_that_has_answered_is_not_one_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    class LingeringThread(threading.Thread):
        """Outlives its call by far, as any thread may on a busy machine."""

        def run(self) -> None:
            super().run()
            end.wait()

    monkeypatch.setattr(threading, "Thread", LingeringThread)

    def fail() -> None:
        raise ArithmeticError("singular")

    async def compute() -> None:
        workers = WorkerThreads()
        for number in range(3):
            assert await workers.plan(lambda number=number: number) == number
            with pytest.raises(ArithmeticError, match="singular"):
                await workers.plan(fail)
        workers.close()

    try:
        asyncio.run(compute())
    finally:
        end.set()


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
            run.live.rounds.set_timer(SetTimer("PlanDue", 0.0))
            await eventually(lambda: failures.problem)
            assert failures.problem == "a plan failed in policy 'max-min': PlanTimeoutError"
            assert lease in run.live.leases
            assert not run.live.tasks.broken.is_set()
            end.set()

    asyncio.run(attack())


def test_a_plan_that_waits_for_one_without_end_gets_another_planner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = threading.Event()
    planners: list[int] = []

    class CountedPlanner(Planner):
        def __init__(self, mechanism: Mechanism[Any]) -> None:
            super().__init__(mechanism)
            number, inner = len(planners), self.plan
            planners.append(0)

            def plan(*arguments: Any) -> tuple[Plan, Any]:
                planners[number] += 1
                if not number:
                    end.wait()
                return inner(*arguments)

            self.plan = plan

    monkeypatch.setattr(guards, "Planner", CountedPlanner)

    async def compute() -> None:
        mechanism, workers, clock = create_live_mechanism("max-min"), WorkerThreads(0.2), Clock()
        guard = guards.PlugInGuard(plug_ins("max-min"))
        rounds = RoundTimers(
            mechanism,
            guard,
            workers,
            clock,
            Inbox(clock),
            reports=lambda _: [],
            pins=lambda _: [],
            round_end_at=lambda: None,
        )
        speeds = SpeedTable({SpeedKey("a", 1, "v100"): 1.0})
        scheduler = Scheduler(Cluster((Node("n", ("v100",)),)), speeds, mechanism)
        scheduler.handle(JobSubmitted(0.0, Job(id="j", workload="a", total_steps=10.0)))
        command = ComputePlan(0, scheduler.snapshot(0.0, 0.0), mechanism.initial())
        both = [asyncio.ensure_future(rounds._compute(command, command.snapshot)) for _ in "ab"]
        await asyncio.gather(*both)
        end.set()
        workers.close()

    asyncio.run(compute())
    assert planners[:2] == [1, 1]


async def events_after(before: float | None, then: float | None) -> list[Event]:
    """Return the events of a request made in one round and handled in another.

    Rounds are given by their ends; None: no round.
    """
    clock, workers, ends = Clock(), WorkerThreads(), [before]
    inbox = Inbox(clock)
    rounds = RoundTimers(
        create_live_mechanism("max-min"),
        guards.PlugInGuard(plug_ins("max-min")),
        workers,
        clock,
        inbox,
        reports=lambda _: [],
        pins=lambda _: [],
        round_end_at=lambda: ends[0],
    )
    rounds.set_timer(SetTimer("PlanDue", clock.now()))
    request = await inbox.get()
    ends[0] = then
    events = [event for event in request.make(1.0) if event is not None]
    workers.close()
    return events


def test_a_request_is_dropped_once_another_round_has_begun() -> None:
    # A plan was being computed when a job arrived, and was applied before its request was handled.
    assert asyncio.run(events_after(None, 30.0)) == []
    assert asyncio.run(events_after(30.0, 60.0)) == []
    for before, then in ((None, None), (30.0, 30.0), (30.0, None)):
        assert asyncio.run(events_after(before, then)) == [PlanDue(1.0)]
