"""Measured costs of restarts reach mechanisms that weigh them, and survive replay."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from fairlead.core import Scheduler, encode_event, load_state, replay, save_state, state_bytes
from fairlead.mechanisms.srtf import Srtf
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.events import Event, JobCancelled, JobSubmitted, RestartMeasured
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable

SPEEDS = SpeedTable({SpeedKey("w", 1, "v100"): 1.0})


@dataclass(frozen=True)
class Weighs(Srtf):
    """Shortest remaining time first with access to the costs of restarts."""

    capabilities: ClassVar[Capabilities] = replace(Srtf.capabilities, reads_restarts=True)


def scheduler(mechanism: Srtf) -> Scheduler[Any]:
    return Scheduler(Cluster.of({"v100": 2}), SPEEDS, mechanism)


def submitted(count: int) -> list[Event]:
    jobs = [Job(id=f"j{i}", workload="w", total_steps=100.0) for i in range(count)]
    return [JobSubmitted(0.0, job) for job in jobs]


def after(mechanism: Srtf, *events: Event) -> Scheduler[Any]:
    made = scheduler(mechanism)
    for event in (*submitted(3), *events):
        assert event is not None
        made.handle(event)
    return made


def test_the_last_restart_of_a_job_counts_and_others_cost_the_mean() -> None:
    made = after(Weighs())
    assert made.snapshot(1.0, 1.0).restart_s.tolist() == [0.0, 0.0, 0.0]
    made.handle(RestartMeasured(1.0, "j1", 30.0))
    assert made.snapshot(1.0, 1.0).restart_s.tolist() == [30.0, 30.0, 30.0]
    made.handle(RestartMeasured(2.0, "j1", 60.0))
    made.handle(RestartMeasured(3.0, "j2", 6.0))
    assert made.snapshot(3.0, 3.0).restart_s.tolist() == pytest.approx([32.0, 60.0, 6.0])


def test_the_mean_follows_a_lasting_change() -> None:
    made = after(Weighs(), *(RestartMeasured(1.0, "j1", 100.0) for _ in range(1000)))
    for _ in range(500):
        made.handle(RestartMeasured(2.0, "j1", 10.0))
    assert made.snapshot(3.0, 3.0).restart_s[0] == pytest.approx(10.0, rel=0.1)


def test_costs_stay_out_of_snapshots_for_mechanisms_that_do_not_weigh_them() -> None:
    made = after(Srtf(), RestartMeasured(1.0, "j1", 30.0))
    assert made.snapshot(1.0, 1.0).restart_s.tolist() == [0.0, 0.0, 0.0]


def test_costs_survive_replay_and_a_saved_state() -> None:
    events = [*submitted(3), RestartMeasured(1.0, "j1", 30.1), RestartMeasured(2.0, "j0", 0.7)]
    whole = scheduler(Weighs())
    for event in events:
        whole.handle(event)
    replayed = replay(scheduler(Weighs()), map(encode_event, events))
    assert state_bytes(replayed) == state_bytes(whole)
    restored = scheduler(Weighs())
    load_state(restored, save_state(whole))
    assert state_bytes(restored) == state_bytes(whole)
    for each in (whole, restored):
        each.handle(RestartMeasured(3.0, "j2", 11.0))
    assert state_bytes(restored) == state_bytes(whole)


def test_a_state_without_restarts_is_saved_as_before() -> None:
    assert "restarts" not in save_state(after(Weighs()))


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_impossible_costs_are_rejected_and_change_nothing(seconds: float) -> None:
    made = after(Weighs())
    before = state_bytes(made)
    with pytest.raises(ProtocolError, match=r"seconds: .* not allowed: expected 0 or more"):
        made.handle(RestartMeasured(1.0, "j1", seconds))
    assert state_bytes(made) == before


def test_a_job_that_has_ended_restarts_no_more() -> None:
    made = after(Weighs(), JobCancelled(1.0, "j1"))
    with pytest.raises(ProtocolError, match="already ended"):
        made.handle(RestartMeasured(2.0, "j1", 1.0))
