"""Simulated jobs measure their restarts, and rounds that know the cost avoid costly ones."""

import random
from typing import Any

import numpy as np
import pytest

from fairlead.core import encode_event, state_bytes
from fairlead.core.event_log import replay
from fairlead.core.scheduler import Scheduler
from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_live_mechanism, create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, RestartMeasured
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

SPEEDS = read_speeds("gandiva-fair")
CLUSTER = Cluster.of({"v100": 1, "p100": 1, "k80": 1})
RECIPE = Recipe(kind="continuous-single", jobs=10, rate=2.0, duration_factor=0.3)
JOBS = generate(RECIPE, SPEEDS, random.Random(3), CLUSTER)


def run(
    policy: str,
    mechanism: str | None = None,
    *,
    cost_s: float = 0.0,
    physics: Physics | None = None,
) -> tuple[Record, list[Event], Scheduler[Any]]:
    events: list[Event] = []
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=JOBS,
        mechanism=create_mechanism(policy, mechanism, 360.0),
        restore_cost_s=cost_s,
        physics=physics,
        on_event=events.append,
    )
    record, scheduler = simulate(scenario)
    assert scheduler is not None
    return record, events, scheduler


def costs(events: list[Event]) -> list[RestartMeasured]:
    return [event for event in events if isinstance(event, RestartMeasured)]


def mean_s(record: Record) -> float:
    return float((record.finished_at - [job.arrival_at for job in JOBS]).mean())


def test_rounds_that_know_the_cost_restart_jobs_seldom_and_end_them_earlier() -> None:
    unknown, _, _ = run("max-min", cost_s=60.0)
    known, events, _ = run("max-min", "shares:restart-s=auto", cost_s=60.0)
    assert {event.seconds for event in costs(events)} == {60.0}
    assert known.preemptions.sum() < unknown.preemptions.sum() / 4
    assert mean_s(known) < mean_s(unknown)


@pytest.mark.parametrize(
    ("policy", "default", "other"),
    [
        ("max-min", "shares", "shares:restart-s=auto"),
        ("fairlead", "shares", "shares:restart-s=0"),
    ],
)
def test_restarts_without_cost_are_not_reported_and_change_nothing(
    policy: str, default: str, other: str
) -> None:
    first, events, _ = run(policy, default)
    second, others, _ = run(policy, other)
    assert np.array_equal(first.finished_at, second.finished_at)
    assert [encode_event(e) for e in events] == [encode_event(e) for e in others]
    assert not costs(events)


def test_costs_of_the_physics_are_reported_by_job_and_replayed() -> None:
    physics = Physics.with_costs(TransitionCosts(resume_s=20.0, move_s=5.0, migrate_s=40.0))
    _, events, scheduler = run("fairlead", cost_s=1.0, physics=physics)
    measured = costs(events)
    assert {event.seconds for event in measured} <= {21.0, 26.0, 41.0}
    assert 41.0 in {event.seconds for event in measured}
    fresh: Scheduler[Any] = Scheduler(
        CLUSTER, SPEEDS, create_live_mechanism("fairlead", None, 360.0)
    )
    replayed = replay(fresh, map(encode_event, events))
    assert state_bytes(replayed) == state_bytes(scheduler)
