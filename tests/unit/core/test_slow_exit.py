"""A job that takes longer than a round to leave its device does not get the device again."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.scripted_plans import ask, launched, plan, ready, scheduler

from fairlead.core import Scheduler
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Preempt
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

SPEEDS = SpeedTable({SpeedKey("m", 1, "k80"): 1.0})
ROUND_S = 5.0


def test_the_time_of_a_leaving_lease_counts_until_it_ends() -> None:
    made = scheduler()
    ready(made, 0.0, plan(0, 1, -1, -1, until=10.0))
    ready(made, 10.0, plan(2, 1, -1, -1, until=20.0))
    received_s = ask(made, 15.0).snapshot.received_s.sum(axis=1)
    assert received_s.tolist() == [15.0, 20.0, 0.0]  # of those that stay until the round ends


@pytest.mark.parametrize("policy", ["max-min", "gandiva-fair", "gandiva"])
def test_the_device_of_a_job_that_leaves_slowly_goes_to_the_other(policy: str) -> None:
    mechanism: Any = create_mechanism(policy, round_s=ROUND_S)
    made = Scheduler(Cluster.of({"k80": 1}), SPEEDS, mechanism)
    for name in "ab":
        made.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=1e6)))
    turns: list[int] = []
    leaves_at, leaving, at = np.inf, np.zeros(0, dtype=np.int64), 0.0
    while len(turns) < 6:
        commands = [*made.handle(ev.RoundEnd(at)), *made.handle(ev.PlanDue(at))]
        for request in commands:
            if isinstance(request, ComputePlan):
                answer = made.mechanism.plan(request.snapshot, request.memory)
                commands += made.handle(ev.PlanReady(at, request.version, *answer))
        for command in commands:
            if isinstance(command, Preempt):
                leaves_at, leaving = at + 2.4 * ROUND_S, command.lease
        if leaves_at <= at + ROUND_S:
            ended = ev.LeasesEnded(leaves_at, leaving, np.zeros(len(leaving)), "left")
            commands += made.handle(ended)
            leaves_at = np.inf
        turns += launched(commands)
        at += ROUND_S
        assert at < 100 * ROUND_S
    assert turns == [0, 1, 0, 1, 0, 1]
