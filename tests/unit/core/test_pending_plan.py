"""A plan that waits for its round: what happens in between neither doubles nor outlives it."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.mechanisms.factory import realise
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

SPEEDS = SpeedTable({SpeedKey("m", 1, kind): 1.0 for kind in ("v100", "k80")})


def waiting_plan() -> tuple[Scheduler[Any], ev.PlanReady]:
    """Return a scheduler in its first round, with the plan for the second waiting."""
    mechanism: Any = realise("fifo", round_s=100.0)
    scheduler = Scheduler(Cluster.of({"v100": 1}), SPEEDS, mechanism, plan_lead_s=20.0)
    for name in "ab":
        scheduler.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=1000)))
    scheduler.handle(planned(scheduler, 0.0))
    ready = planned(scheduler, 80.0)
    scheduler.handle(ready)
    assert scheduler.pending is not None
    return scheduler, ready


def planned(scheduler: Scheduler[Any], at: float) -> ev.PlanReady:
    (asked,) = scheduler.handle(ev.PlanDue(at))
    assert isinstance(asked, ComputePlan)
    plan, memory = scheduler.mechanism.plan(asked.snapshot, asked.memory)
    return ev.PlanReady(at, asked.version, plan, memory)


def test_no_further_plan_is_asked_for_while_one_waits() -> None:
    scheduler, _ = waiting_plan()
    assert scheduler.handle(ev.PlanDue(100.0)) == []
    assert scheduler.pending is not None


def test_a_job_that_ends_before_its_waiting_plan_applies_is_not_started_again() -> None:
    scheduler, _ = waiting_plan()
    (lease,) = scheduler.leases.lease[scheduler.leases.open].tolist()
    ends = ev.LeasesEnded(90.0, np.array([lease]), np.array([1000.0]), "finished")
    begun = [c for c in scheduler.handle(ends) if isinstance(c, Launch)]
    later = [*scheduler.handle(ev.PlanDue(100.0)), *scheduler.handle(ev.RoundEnd(100.0))]
    begun += [command for command in later if isinstance(command, Launch)]
    started = [job for command in begun for job in command.on.job.tolist()]
    assert started in ([1], [])
    assert 0 not in started


def test_a_plan_does_not_outlive_the_round_it_was_made_for() -> None:
    scheduler, _ = waiting_plan()
    for name in "ab":
        scheduler.handle(ev.JobCancelled(85.0, name))
    for lease in scheduler.leases.lease[scheduler.leases.open].tolist():
        scheduler.handle(ev.LeasesEnded(86.0, np.array([lease]), np.array([9.0]), "left"))
    scheduler.handle(ev.JobSubmitted(87.0, Job(id="c", workload="m", total_steps=1000)))
    if scheduler.round_end_at is None:
        scheduler.handle(planned(scheduler, 88.0))
        assert scheduler.pending is None
    assert scheduler.jobs.lease[2] >= 0
