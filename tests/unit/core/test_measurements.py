"""Measurements of jobs reach mechanisms that read them, and survive replay."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.core.saved_state import load_state, save_state
from fairlead.mechanisms.srtf import Srtf
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch
from fairlead.model.errors import ProtocolError
from fairlead.model.events import (
    Event,
    JobsMeasured,
    JobSubmitted,
    Measured,
    PlanDue,
    PlanReady,
    SpeedMeasured,
)
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.key import scoped_workload
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.testing.mechanisms.scenarios import mixed_gangs

SPEEDS = SpeedTable({SpeedKey("w", 1, "v100"): 1.0})


@dataclass(frozen=True)
class Reads(Srtf):
    """Shortest remaining time first with access to measurements."""

    capabilities: ClassVar[Capabilities] = replace(Srtf.capabilities, reads_measured=True)


class World:
    """Two running jobs on two devices, and a third that arrived later."""

    def __init__(self, mechanism: Srtf) -> None:
        self.mechanism = mechanism
        self.log: list[str] = []
        self.scheduler = Scheduler(Cluster.of({"v100": 2}), SPEEDS, mechanism)
        for i in range(2):
            self.send(JobSubmitted(0.0, Job(id=f"j{i}", workload="w", total_steps=100.0 + i)))
        (request,) = (c for c in self.send(PlanDue(0.0)) if isinstance(c, ComputePlan))
        plan, memory = mechanism.plan(request.snapshot, None)
        ready = self.send(PlanReady(0.0, request.version, plan, memory))
        (launch,) = (c for c in ready if isinstance(c, Launch))
        self.lease = dict(zip(launch.on.job.tolist(), launch.lease.tolist(), strict=True))
        self.send(JobSubmitted(1.0, Job(id="j2", workload="w", total_steps=100.0)))

    def send(self, event: Event) -> list[object]:
        self.log.append(encode_event(event))
        return list(self.scheduler.handle(event))

    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot(50.0, 60.0)


def test_last_report_of_each_job_is_in_the_snapshot() -> None:
    world = World(Reads())
    world.send(Measured(10.0, world.lease[1], 3.0, 0.5, 4.0))
    world.send(Measured(20.0, world.lease[1], 2.0, 0.25))
    measured = world.snapshot().measured
    assert measured is not None
    assert measured.at.tolist() == [-np.inf, 20.0, -np.inf]
    assert measured.lease.tolist() == [-1, world.lease[1], -1]
    assert measured.steps_per_s == pytest.approx([np.nan, 2.0, np.nan], nan_ok=True)
    assert measured.utilization == pytest.approx([np.nan, 0.25, np.nan], nan_ok=True)
    assert np.isnan(measured.memory_gib).all()


def test_measurements_are_dropped_for_a_mechanism_that_does_not_read_them() -> None:
    world = World(Srtf())
    before = state_bytes(world.scheduler)
    world.send(Measured(10.0, world.lease[1], 3.0))
    assert world.snapshot().measured is None
    assert state_bytes(world.scheduler) == before


def test_report_of_an_unknown_lease_is_rejected() -> None:
    world = World(Reads())
    with pytest.raises(ProtocolError, match="lease not open"):
        world.send(Measured(10.0, world.lease[1] + (1 << 40), 3.0))


def test_measurements_survive_replay_and_a_saved_state() -> None:
    world = World(Reads())
    world.send(Measured(10.0, world.lease[0], 3.0, 0.5, 4.0))
    fresh = Scheduler(Cluster.of({"v100": 2}), SPEEDS, Reads())
    assert state_bytes(replay(fresh, world.log)) == state_bytes(world.scheduler)
    loaded = Scheduler(Cluster.of({"v100": 2}), SPEEDS, Reads())
    load_state(loaded, save_state(world.scheduler))
    assert state_bytes(loaded) == state_bytes(world.scheduler)
    measured = loaded.snapshot(50.0, 60.0).measured
    assert measured is not None
    assert measured.steps_per_s[0] == 3.0


def test_measured_speed_counts_in_its_scope_and_survives_replay_and_a_saved_state() -> None:
    world = World(Srtf())
    job = Job(id="foreign", workload="w", total_steps=9.0, tenant="other")
    world.send(JobSubmitted(2.0, job))
    changes = world.scheduler.changes
    scoped = scoped_workload("default", "w", "")
    world.send(SpeedMeasured(10.0, scoped, 1, "v100", 7.0))
    assert world.scheduler.changes == changes + 1
    assert world.snapshot().speed[:, 0].tolist() == [7.0, 7.0, 7.0, 1.0]
    fresh = Scheduler(Cluster.of({"v100": 2}), SPEEDS, Srtf())
    assert state_bytes(replay(fresh, world.log)) == state_bytes(world.scheduler)
    loaded = Scheduler(Cluster.of({"v100": 2}), SPEEDS, Srtf())
    load_state(loaded, save_state(world.scheduler))
    assert state_bytes(loaded) == state_bytes(world.scheduler)
    assert loaded.snapshot(50.0, 60.0).speed[:, 0].tolist() == [7.0, 7.0, 7.0, 1.0]
    other = SpeedTable({SpeedKey("w", 1, "v100"): 3.0})
    loaded.reconfigure(other, Srtf(), 0.0)
    assert loaded.snapshot(50.0, 60.0).speed[:, 0].tolist() == [7.0, 7.0, 7.0, 3.0]


def test_jobs_without_a_workload_have_own_profiles_after_a_restart_too() -> None:
    table = SpeedTable({}, assumed=1.0)
    scheduler = Scheduler(Cluster.of({"v100": 2}), table, Srtf())
    events: list[Event] = [
        *(JobSubmitted(0.0, Job(id=f"j{i}", workload="", total_steps=9.0)) for i in range(3)),
        SpeedMeasured(1.0, scoped_workload("default", "", "j0"), 1, "v100", 5.0),
        JobSubmitted(2.0, Job(id="j3", workload="", total_steps=9.0)),
    ]
    for event in events:
        scheduler.handle(event)
    loaded = Scheduler(Cluster.of({"v100": 2}), table, Srtf())
    load_state(loaded, save_state(scheduler))
    for each in (scheduler, loaded):
        each.handle(JobSubmitted(3.0, Job(id="j4", workload="", total_steps=9.0)))
        assert each.snapshot(9.0, 9.0).speed[:, 0].tolist() == [5.0, 1.0, 1.0, 1.0, 1.0]
    assert state_bytes(loaded) == state_bytes(scheduler)


@pytest.mark.parametrize(("mechanism", "reported"), [(Srtf(), False), (Reads(), True)])
def test_simulation_reports_only_to_mechanisms_that_read(mechanism: Srtf, reported: bool) -> None:
    seen: list[Event] = []
    simulate(replace(mixed_gangs(mechanism), on_event=seen.append))
    assert any(isinstance(event, JobsMeasured) for event in seen) == reported


def test_elastic_gangs_are_in_the_snapshot_and_fixed_ones_cost_nothing() -> None:
    world = World(Srtf())
    assert world.snapshot().profiles.max_gang is None
    grows = Job(id="grows", workload="w", total_steps=1.0, max_gang=2)
    world.send(JobSubmitted(2.0, grows))
    snap = world.snapshot()
    assert snap.profiles.min_gang is not None
    assert snap.profiles.max_gang is not None
    assert snap.profiles.min_gang[snap.profile].tolist() == [1, 1, 1, 1]
    assert snap.profiles.max_gang[snap.profile].tolist() == [1, 1, 1, 2]


def test_the_size_of_the_table_does_not_depend_on_the_sequence_of_reports() -> None:
    sizes = []
    for sequence in ((0, 2, 4), (4, 0, 2), (0, 1, 2, 3, 4)):
        jobs = World(Reads()).scheduler.jobs
        for job in sequence:
            jobs.store_measurements(np.array([job]), np.zeros((1, 5)))
        sizes.append(len(jobs.measured))
    assert sizes == [8, 8, 8]
