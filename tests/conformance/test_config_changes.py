"""Mechanisms can be switched: each continues with the leases that another has started."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.core import Scheduler, load_state, save_state, state_bytes
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.testing.mechanisms import scenarios
from fairlead.testing.mechanisms.checked import checked_mechanism
from fairlead.testing.mechanisms.scenarios import SPEEDS
from fairlead.testing.mechanisms.slow_leaving_cluster import SlowLeavingCluster

PAIRS = [
    *((name, "shares") for name in NAMES if name != "shares"),
    *(("gandiva", name) for name in NAMES if name not in ("shares", "gandiva")),
    *(("hadar", name) for name in NAMES if name not in ("shares", "hadar", "gandiva")),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_mechanism_continues_with_leases_of_another(first: str, second: str) -> None:
    scenario = scenarios.mixed_gangs(make_mechanism(first))
    jobs = [
        replace(job, total_steps=1e9, utilization=0.2, memory_gib=1.0) for job in scenario.jobs
    ]
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, SPEEDS, checked_mechanism(make_mechanism(first), jobs)
    )
    cluster = SlowLeavingCluster(scheduler, scheduler.mechanism)
    cluster.submit(jobs[0], 0.0)
    at = 0.0
    for turn, job in enumerate([*jobs[1:], *[None] * 30]):
        at = cluster.next_at
        cluster.wake()
        if job is not None:
            cluster.submit(job, at)
        cluster.finish_leaving(at, fraction=(0.0, 0.5, 1.0)[turn % 3])
    leases = scheduler.leases
    assert len(leases) > 0
    cluster.switch_mechanism(checked_mechanism(make_mechanism(second), jobs), at)
    assert np.isin(leases.holder, leases.active_slots).sum(axis=0).max() <= 1, "packed jobs stay"
    for turn in range(40):
        at = cluster.next_at
        assert at < float("inf"), "no wake-up although jobs wait"
        cluster.wake()
        cluster.finish_leaving(at, fraction=(0.0, 0.5, 1.0)[turn % 3])
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


def test_lease_of_the_jobs_full_gang_stays() -> None:
    scheduler = started(make_mechanism("hadar"), job(0, gang=1), job(1, gang=1))
    leases = scheduler.leases
    assert len(leases) == 2
    scheduler.reconfigure(SPEEDS, make_mechanism("shares"), 0.0)
    assert leases.leaving_count == 0
    assert len(leases) == 2


def test_mixed_gang_prevents_a_mechanism_without_mixed_gangs() -> None:
    scheduler = started(make_mechanism("hadar"), job(0, gang=4))
    before = state_bytes(scheduler)
    with pytest.raises(InputError, match="'j0'"):
        scheduler.reconfigure(SPEEDS, make_mechanism("shares"), 0.0)
    assert state_bytes(scheduler) == before
    scheduler.reconfigure(
        SPEEDS, make_mechanism("hadar"), 0.0
    )  # the failed switch changed nothing
    assert scheduler.leases.leaving_count == 1, "a mixed gang is placed again"


def test_new_speeds_apply_at_once_and_ended_jobs_need_none() -> None:
    scheduler = started(
        make_mechanism("shares"), job(0), Job(id="old", workload="cnn", total_steps=1.0)
    )
    number = scheduler.jobs.number["old"]
    (slot,) = scheduler.leases.of_job(number)
    lease = scheduler.leases.lease[[slot]]
    scheduler.handle(ev.LeasesEnded(5.0, lease, np.ones(1), "finished"))
    only_big = SpeedTable({SpeedKey("big", 1, name): 7.0 for name in ("v100", "k80")})
    scheduler.reconfigure(only_big, make_mechanism("shares"), 0.0)
    assert set(scheduler.snapshot(6.0, 6.0).speed.ravel().tolist()) == {7.0}
    fresh: Scheduler[Any] = Scheduler(TWO, only_big, make_mechanism("shares"))
    load_state(fresh, save_state(scheduler))
    assert state_bytes(fresh) == state_bytes(scheduler)
    with pytest.raises(InputError, match="no workload 'cnn'"):
        fresh.handle(ev.JobSubmitted(7.0, Job(id="new", workload="cnn", total_steps=1.0)))


def test_per_accelerator_gangs_prevent_mechanisms_without_them() -> None:
    two = {"accelerators": ("v100", "k80"), "gangs": {"k80": 2}}
    scheduler = started(make_mechanism("shares"), *(job(i, **two) for i in range(3)))
    leases = scheduler.leases
    assert sorted(leases.sizes(leases.open).tolist()) == [1, 1, 2]
    before = state_bytes(scheduler)
    with pytest.raises(InputError, match="different numbers"):
        scheduler.reconfigure(SPEEDS, make_mechanism("gandiva"), 0.0)
    assert state_bytes(scheduler) == before
    scheduler.reconfigure(SPEEDS, make_mechanism("gavel"), 0.0)
    assert leases.leaving_count == 0, "two K80s are the job's gang there"
    for i in range(3):
        scheduler.handle(ev.JobCancelled(1.0, f"j{i}"))
    scheduler.reconfigure(SPEEDS, make_mechanism("gandiva"), 0.0)  # ended jobs do not matter
    fresh: Scheduler[Any] = Scheduler(TWO, SPEEDS, make_mechanism("gandiva"))
    load_state(fresh, save_state(scheduler))
    assert state_bytes(fresh) == state_bytes(scheduler)
