"""Promises of the lottery beyond the paper's table: shares by tickets, no job kept waiting."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.papers.gandiva_fair.test_gandiva_fair import Bench

from fairlead.mechanisms.lottery import Lottery, LotteryMemory
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.events import JobSubmitted
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.testing.cpu_time import cpu_s

KINDS = ("v100", "k80")
SPEEDS = SpeedTable(
    {SpeedKey("any", gang, accelerator): 1.0 for gang in range(1, 9) for accelerator in KINDS}
)


def running_time(
    devices: dict[str, int],
    jobs: list[tuple[int, float]],
    quanta: int,
    accelerators: Mapping[int, tuple[str, ...]] | None = None,
) -> tuple[list[float], Bench]:
    """Return jobs (gang and weight) → part of the time for which each runs."""
    bench = Bench(devices, SPEEDS, Lottery())
    for number, (gang, weight) in enumerate(jobs):
        only = (accelerators or {}).get(number)
        job = Job(
            id=str(number),
            workload="any",
            gang=gang,
            weight=weight,
            total_steps=1e12,
            accelerators=only,
        )
        bench.scheduler.handle(JobSubmitted(0.0, job))
    held = bench.run(quanta).sum(axis=1)
    return (held / [gang for gang, _ in jobs]).tolist(), bench


def test_jobs_that_all_fit_run_all_the_time_whatever_their_tickets() -> None:
    jobs = [
        Job(id=name, workload="any", total_steps=40_000.0, weight=weight)
        for name, weight in (("a", 1000.0), ("b", 1.0))
    ]
    scenario = Scenario(
        cluster=Cluster.of({"v100": 2}), speeds=SPEEDS, jobs=jobs, mechanism=Lottery()
    )
    (record, _), took_s = cpu_s(lambda: simulate(scenario))
    np.testing.assert_allclose(record.finished_at, 40_000.0)
    assert took_s < 2.0


@dataclass(frozen=True)
class ColdLottery:
    """A lottery whose planner keeps nothing from one quantum to the next."""

    capabilities: ClassVar[Capabilities] = Lottery.capabilities
    round_s: float = 60.0

    def initial(self) -> LotteryMemory:
        return Lottery().initial()

    def plan(self, snap: Snapshot, memory: LotteryMemory) -> tuple[Plan, LotteryMemory]:
        return Lottery().plan(snap, memory)


def test_tickets_that_are_kept_while_no_job_comes_change_no_draw() -> None:
    rng = np.random.default_rng(3)
    jobs = [
        Job(
            id=str(i),
            workload="any",
            gang=int(gang),
            arrival_at=600.0 * i,
            total_steps=float(rng.integers(300, 9000)),
            weight=float(rng.integers(1, 4)),
        )
        for i, gang in enumerate(rng.integers(1, 4, 24))
    ]
    runs = []
    for mechanism in (Lottery(), ColdLottery()):
        cluster = Cluster.of({"v100": 4, "k80": 3})
        scenario = Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=mechanism)
        record, _ = simulate(scenario)
        runs.append(record.finished_at.tolist())
    assert runs[0] == runs[1]


def test_a_job_with_tickets_for_more_than_all_the_time_leaves_the_rest_to_be_drawn_for() -> None:
    part, bench = running_time({"v100": 2}, [(1, 1000.0), (1, 3.0), (1, 1.0)], 2000)
    assert part == pytest.approx([1.0, 0.75, 0.25], rel=0.1)
    assert part[0] == 1.0
    assert sum(part) == pytest.approx(2.0)
    assert len(bench.scheduler.memory.queue) <= 16 * 3


def test_large_gangs_have_their_share_beside_a_job_that_always_runs() -> None:
    part, _ = running_time({"v100": 5}, [(1, 1000.0), (4, 1.0), *[(1, 1.0)] * 4], 2000)
    assert part == pytest.approx([1.0, *[0.5] * 5], rel=0.06)


def test_gangs_that_always_wait_run_in_proportion_to_their_tickets() -> None:
    """One gang of three at a time beside a job that fits in what it leaves: it runs always."""
    part, bench = running_time({"v100": 4}, [(3, 3.0), (3, 1.0), (1, 1.0)], 2000)
    assert part == pytest.approx([0.75, 0.25, 1.0], rel=0.05)
    assert part[2] == 1.0
    assert len(bench.scheduler.memory.queue) <= 16 * 3


def test_those_who_wait_for_one_accelerator_take_no_gangs_place_in_the_queue_of_another() -> None:
    k80_only = dict.fromkeys(range(5, 15), ("k80",))
    v100_only = dict.fromkeys(range(5), ("v100",))
    jobs = [(4, 1.0), *[(1, 1.0)] * 4, *[(1, 1.0)] * 10]
    part, _ = running_time({"v100": 4, "k80": 1}, jobs, 2000, v100_only | k80_only)
    assert part[:5] == pytest.approx([0.5] * 5, rel=0.06)
    assert part[5:] == pytest.approx([0.1] * 10, rel=0.25)
    assert sum(part[5:]) == pytest.approx(1.0)
