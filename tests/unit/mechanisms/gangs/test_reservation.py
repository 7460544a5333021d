"""Devices reserved for long gangs under `makespan`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlead.files import read_cluster
from fairlead.mechanisms._gangs.schedule import shortest_schedule
from fairlead.mechanisms.base import FluidMechanism, Mechanism
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

HOUR_S = 3600.0


def _schedule_h(hours: list[float], gangs: list[int], devices: int) -> float:
    rate = 1.0 / np.array(hours)[:, None]
    gang = np.array(gangs)[:, None]
    parts = shortest_schedule(rate, gang, [devices], np.zeros(rate.shape), 0.0)
    assert parts is not None
    for part in parts:
        assert gang[list(part.rows), list(part.columns)].sum() <= devices
    for row, needed in enumerate(hours):
        assert sum(part.time for part in parts if row in part.rows) >= needed * (1 - 1e-9)
    return sum(part.time for part in parts)


def test_gangs_that_do_not_fit_beside_each_other_run_one_after_the_other() -> None:
    # Device time alone would allow (3 × 4 + 4 × 2) / 4 = 5 hours.
    assert np.isclose(_schedule_h([4.0, 2.0], [3, 4], 4), 6.0)


def test_three_gangs_of_two_on_three_devices_take_turns() -> None:
    assert np.isclose(_schedule_h([3.0, 2.0, 1.0], [2, 2, 2], 3), 6.0)


def test_gangs_that_fit_run_at_once() -> None:
    assert np.isclose(_schedule_h([3.0, 2.0, 1.0], [1, 1, 2], 4), 3.0, rtol=1e-3)


def test_no_schedule_is_returned_where_the_time_is_enough() -> None:
    rate, gang = np.array([[0.25], [0.5]]), np.array([[3], [4]])
    assert shortest_schedule(rate, gang, [4], np.zeros((2, 1)), 6.001) is None


def test_no_schedule_is_returned_where_the_numbers_are_out_of_range() -> None:
    rate, gang = np.array([[0.25], [1e16]]), np.array([[3], [4]])
    assert shortest_schedule(rate, gang, [4], np.zeros((2, 1)), 0.0) is None


def _job(name: str, hours: float, gang: int) -> Job:
    return Job(id=name, arrival_at=0.0, workload=f"w{gang}", gang=gang, total_steps=hours * HOUR_S)


def test_a_gang_of_all_devices_does_not_wait_for_its_share_beside_a_long_job() -> None:
    """The long job and the gang of four cannot overlap: 30 hours is the least makespan."""
    jobs = [_job("long", 20.0, 1), _job("whole", 10.0, 4)]
    jobs += [_job(f"short {i}", 5.0, 1) for i in range(12)]
    table = {SpeedKey(f"w{gang}", gang, "v100"): 1.0 for gang in (1, 4)}
    scenario = Scenario(
        cluster=read_cluster("v100=4"),
        speeds=SpeedTable(table, "test"),
        jobs=tuple(jobs),
        mechanism=create_mechanism("makespan", None, 360.0),
    )
    record = simulate(scenario)[0]
    assert record.finished_at.max() <= 1.04 * 30 * HOUR_S


def _snapshot(devices: int, *jobs: tuple[float, int], priority: int = 0) -> Snapshot:
    """Return jobs of (hours, gang), in the order of their numbers; the last has the priority."""
    listed = [
        InstanceJob(id=str(i), speeds={"v100": 1.0}, gang=gang, steps_left=hours * HOUR_S)
        for i, (hours, gang) in enumerate(jobs)
    ]
    listed[-1] = replace(listed[-1], priority=priority)
    return snapshot_of(Instance(read_cluster(f"v100={devices}"), tuple(listed)))


def _mechanism(policy: str) -> Mechanism[Any]:
    mechanism = create_mechanism(policy, None, 360.0)
    assert not isinstance(mechanism, FluidMechanism)
    return mechanism


@pytest.mark.parametrize("devices", [4, 6])
@pytest.mark.parametrize("steps_left", [1e-9, 1e-3, 0.3])
def test_a_job_that_is_about_to_exit_does_not_prevent_the_reservation(
    devices: int, steps_left: float
) -> None:
    """On four devices the policy gives that job no share at all."""
    mechanism = _mechanism("makespan")
    both = (400.0, 3), (200.0, 4)
    snap = _snapshot(devices, *both, (steps_left / HOUR_S, 1))
    _, expected = mechanism.plan(_snapshot(devices, *both), mechanism.initial())
    _, memory = mechanism.plan(snap, mechanism.initial())
    assert memory.ends_at == pytest.approx(1.01 * 600 * HOUR_S)
    assert memory.ends_at == pytest.approx(expected.ends_at)
    _, memory = mechanism.plan(replace(snap, starts_at=10 * HOUR_S), memory)
    assert np.sort(memory.share[:2, 0]).tolist() == [0.0, 1.0], "one of the gangs is in its place"


@pytest.mark.parametrize("policy", ["makespan", "makespan:packed"])
def test_an_end_aimed_at_does_not_outlast_shares_that_reserve_nothing(policy: str) -> None:
    mechanism = _mechanism(policy)
    jobs = (20.0, 1), (10.0, 4), (100.0, 3)
    _, memory = mechanism.plan(replace(_snapshot(4, *jobs[:2]), changes=1), mechanism.initial())
    assert memory.ends_at == pytest.approx(1.01 * 30 * HOUR_S)
    bound = replace(_snapshot(4, *jobs, (1.0, 1), priority=1), changes=2)
    _, memory = mechanism.plan(bound, memory)
    assert memory.ends_at == 0.0, "a priority leaves everything to the shares"
    _, memory = mechanism.plan(replace(_snapshot(4, *jobs), changes=3), memory)
    assert memory.ends_at == pytest.approx(1.01 * 110 * HOUR_S)
