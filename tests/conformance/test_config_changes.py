"""Operators change their minds: every mechanism goes on from what any other has left running."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.registered import NAMES, made

from fairlead.core import Scheduler, load_state, save_state, state_bytes
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.testing.mechanisms import scenarios
from fairlead.testing.mechanisms.checked import watched
from fairlead.testing.mechanisms.scenarios import SPEEDS
from fairlead.testing.mechanisms.slow_cluster import SlowLeavingCluster

PAIRS = [
    *((name, "shares") for name in NAMES if name != "shares"),
    *(("gandiva", name) for name in NAMES if name not in ("shares", "gandiva")),
    *(("hadar", name) for name in NAMES if name not in ("shares", "hadar", "gandiva")),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_what_one_mechanism_has_begun_another_goes_on_with(first: str, second: str) -> None:
    scenario = scenarios.mixed_gangs(made(first))
    jobs = [
        replace(job, total_steps=1e9, utilization=0.2, memory_gib=1.0) for job in scenario.jobs
    ]
    scheduler: Scheduler[Any] = Scheduler(scenario.cluster, SPEEDS, watched(made(first), jobs))
    cluster = SlowLeavingCluster(scheduler, scheduler.mechanism)
    cluster.submit(jobs[0], 0.0)
    at = 0.0
    for turn, job in enumerate([*jobs[1:], *[None] * 30]):
        at = cluster.next_at
        cluster.wake()
        if job is not None:
            cluster.submit(job, at)
        cluster.let_go(at, part=(0.0, 0.5, 1.0)[turn % 3])
    leases = scheduler.leases
    assert len(leases) > 0
    cluster.go_by(watched(made(second), jobs), at)
    assert np.isin(leases.holder, leases.staying).sum(axis=0).max() <= 1, "packed jobs stay"
    for turn in range(40):
        at = cluster.next_at
        assert at < float("inf"), "it sleeps while jobs wait"
        cluster.wake()
        cluster.let_go(at, part=(0.0, 0.5, 1.0)[turn % 3])
    assert len(leases) >= len(scenario.cluster.node_of) // 3


TWO = Cluster.of({"v100": 2, "k80": 2}, per_node=4)


def started(mechanism: Any, *jobs: Job) -> Scheduler[Any]:
    scheduler: Scheduler[Any] = Scheduler(TWO, SPEEDS, mechanism)
    for job in jobs:
        scheduler.handle(ev.JobSubmitted(0.0, job))
    (request,) = scheduler.handle(ev.PlanDue(0.0))
    assert isinstance(request, ComputePlan)
    plan, memory = mechanism.plan(request.snapshot, request.memory)
    scheduler.handle(ev.PlanReady(0.0, 1, plan, memory))
    return scheduler


def job(number: int, **more: Any) -> Job:
    return Job(id=f"j{number}", workload="big", total_steps=1e6, **more)


def test_a_lease_of_the_jobs_own_gang_stays() -> None:
    scheduler = started(made("hadar"), job(0, gang=1), job(1, gang=1))
    leases = scheduler.leases
    assert len(leases) == 2
    scheduler.go_by(SPEEDS, made("shares"), 0.0)
    assert leases.leaving_count == 0
    assert len(leases) == 2


def test_a_gang_that_only_mixing_can_run_refuses_a_mechanism_that_does_not_mix() -> None:
    scheduler = started(made("hadar"), job(0, gang=4))
    before = state_bytes(scheduler)
    with pytest.raises(InputError, match="'j0'"):
        scheduler.go_by(SPEEDS, made("shares"), 0.0)
    assert state_bytes(scheduler) == before
    scheduler.go_by(SPEEDS, made("hadar"), 0.0)  # and nothing has changed that it needs
    assert scheduler.leases.leaving_count == 1, "a mixed gang is placed anew"


def test_other_speeds_count_from_then_on_and_ended_jobs_need_none() -> None:
    scheduler = started(made("shares"), job(0), Job(id="old", workload="cnn", total_steps=1.0))
    number = scheduler.jobs.number["old"]
    (slot,) = scheduler.leases.of_job(number)
    lease = scheduler.leases.lease[[slot]]
    scheduler.handle(ev.LeasesEnded(5.0, lease, np.ones(1), "finished"))
    only_big = SpeedTable({SpeedKey("big", 1, kind): 7.0 for kind in ("v100", "k80")})
    scheduler.go_by(only_big, made("shares"), 0.0)
    assert set(scheduler.snapshot(6.0, 6.0).speed.ravel().tolist()) == {7.0}
    fresh: Scheduler[Any] = Scheduler(TWO, only_big, made("shares"))
    load_state(fresh, save_state(scheduler))
    assert state_bytes(fresh) == state_bytes(scheduler)
    with pytest.raises(InputError, match="no workload 'cnn'"):
        fresh.handle(ev.JobSubmitted(7.0, Job(id="new", workload="cnn", total_steps=1.0)))


def test_a_job_with_numbers_for_accelerators_goes_on_only_under_who_takes_it() -> None:
    two = {"accelerators": ("v100", "k80"), "gangs": {"k80": 2}}
    scheduler = started(made("shares"), *(job(i, **two) for i in range(3)))
    leases = scheduler.leases
    assert sorted(leases.sizes(leases.open).tolist()) == [1, 1, 2]
    before = state_bytes(scheduler)
    with pytest.raises(InputError, match="different numbers"):
        scheduler.go_by(SPEEDS, made("gandiva"), 0.0)
    assert state_bytes(scheduler) == before
    scheduler.go_by(SPEEDS, made("gavel"), 0.0)
    assert leases.leaving_count == 0, "two K80 are its own gang there"
    for i in range(3):
        scheduler.handle(ev.JobCancelled(1.0, f"j{i}"))
    scheduler.go_by(SPEEDS, made("gandiva"), 0.0)  # ended jobs are no matter
    fresh: Scheduler[Any] = Scheduler(TWO, SPEEDS, made("gandiva"))
    load_state(fresh, save_state(scheduler))
    assert state_bytes(fresh) == state_bytes(scheduler)
