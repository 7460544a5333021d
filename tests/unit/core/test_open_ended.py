"""Jobs that declare no steps: policies that need lengths use estimates."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.scripted_plans import (
    SPEEDS,
    Scripted,
    ask,
    lease_of,
    plan,
    ready,
    scheduler,
)

from fairlead.core import Scheduler
from fairlead.core.event_log import decode_event, encode_event
from fairlead.core.saved_state import load_state, save_state
from fairlead.live.job_spec import JobSpec
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.job import Job

OPEN = JobSpec(id="open", command=("true",), workload="m").job(0.0)


def test_an_open_ended_job_needs_as_long_again_as_it_has_used() -> None:
    made = scheduler()
    made.handle(ev.JobSubmitted(0.0, OPEN))
    first = ask(made, 0.0).snapshot
    assert first.steps_left.tolist() == [100.0, 100.0, 100.0, 600.0]  # at 1 step/s
    ready(made, 0.0, plan(0, 3, -1, -1))
    assert ask(made, 360.0).snapshot.steps_left[3] == 600.0
    # Without reports its time counts, with reports its steps.
    assert made.snapshot(900.0, 900.0).steps_left[3] == pytest.approx(900.0)
    made.handle(ev.Progress(1000.0, np.array([lease_of(made, 3)]), np.array([2500.0])))
    last = made.snapshot(1000.0, 1000.0)
    assert last.steps_left[3] == 2500.0
    assert last.length.tolist() == [100.0, 100.0, 100.0, 5000.0]


def first_launch(*jobs: Job) -> str:
    """Return the job that ``srtf`` starts on the only device."""
    made: Scheduler[Any] = Scheduler(
        Cluster.of({"v100": 1}), SPEEDS, create_live_mechanism("srtf")
    )
    for job in jobs:
        made.handle(ev.JobSubmitted(0.0, job))
    (request,) = [c for c in made.handle(ev.PlanDue(0.0)) if isinstance(c, ComputePlan)]
    computed, memory = made.mechanism.plan(request.snapshot, request.memory)
    commands = made.handle(ev.PlanReady(0.0, request.version, computed, memory))
    (started,) = [c.on.job.item(0) for c in commands if isinstance(c, Launch)]
    return made.jobs.ids[started]


@pytest.mark.parametrize(("steps", "first"), [(500, "declared"), (700, "open")])
def test_shortest_first_compares_declared_lengths_with_estimates(steps: int, first: str) -> None:
    assert first_launch(Job(id="declared", workload="m", total_steps=steps), OPEN) == first


def test_the_event_log_and_saved_states_keep_that_no_steps_are_declared() -> None:
    event = ev.JobSubmitted(0.0, OPEN)
    made = scheduler()
    made.handle(decode_event(encode_event(event), int))
    again: Scheduler[int] = Scheduler(made.cluster, SPEEDS, Scripted())
    load_state(again, save_state(made))
    assert again.snapshot(0.0, 0.0).steps_left[3] == 600.0
