"""A pending plan is requested once, drops ended jobs, and never outlives its round."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

SPEEDS = SpeedTable({SpeedKey("m", 1, name): 1.0 for name in ("v100", "k80")})


def with_pending_plan() -> tuple[Scheduler[Any], ev.PlanReady]:
    """Return a scheduler in its first round, with a pending plan for the second."""
    mechanism: Any = create_mechanism("fifo", round_s=100.0)
    scheduler = Scheduler(Cluster.of({"v100": 1}), SPEEDS, mechanism, plan_lead_s=20.0)
    for name in "ab":
        scheduler.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=1000)))
    scheduler.handle(planned(scheduler, 0.0))
    ready = planned(scheduler, 80.0)
    scheduler.handle(ready)
    assert scheduler.pending is not None
    return scheduler, ready


def planned(scheduler: Scheduler[Any], at: float) -> ev.PlanReady:
    (request,) = scheduler.handle(ev.PlanDue(at))
    assert isinstance(request, ComputePlan)
    plan, memory = scheduler.mechanism.plan(request.snapshot, request.memory)
    return ev.PlanReady(at, request.version, plan, memory)


def test_no_further_plan_is_requested_while_one_is_pending() -> None:
    scheduler, _ = with_pending_plan()
    assert scheduler.handle(ev.PlanDue(100.0)) == []
    assert scheduler.pending is not None


def test_job_that_ends_before_its_pending_plan_applies_is_not_started_again() -> None:
    scheduler, _ = with_pending_plan()
    (lease,) = scheduler.leases.lease[scheduler.leases.open].tolist()
    ends = ev.LeasesEnded(90.0, np.array([lease]), np.array([1000.0]), "finished")
    launches = [c for c in scheduler.handle(ends) if isinstance(c, Launch)]
    later = [*scheduler.handle(ev.PlanDue(100.0)), *scheduler.handle(ev.RoundEnd(100.0))]
    launches += [command for command in later if isinstance(command, Launch)]
    started = [job for command in launches for job in command.on.job.tolist()]
    assert started in ([1], [])
    assert 0 not in started


def test_pending_plan_does_not_outlive_its_round() -> None:
    scheduler, _ = with_pending_plan()
    for name in "ab":
        scheduler.handle(ev.JobCancelled(85.0, name))
    for lease in scheduler.leases.lease[scheduler.leases.open].tolist():
        scheduler.handle(ev.LeasesEnded(86.0, np.array([lease]), np.array([9.0]), "left"))
    scheduler.handle(ev.JobSubmitted(87.0, Job(id="c", workload="m", total_steps=1000)))
    if scheduler.round_end_at is None:
        scheduler.handle(planned(scheduler, 88.0))
        assert scheduler.pending is None
    assert scheduler.jobs.lease[2] >= 0
