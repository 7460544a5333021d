"""Simulations of real runs: measured leases, and plans that take time to compute."""

from dataclasses import replace

import pytest

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.physics.measured_leases import MeasuredLease
from fairlead.sim.scenario import Scenario

SCENARIO = Scenario(
    cluster=Cluster((Node("n", ("p100",)),)),
    speeds=SpeedTable({SpeedKey("VAE", 1, "p100"): 10.0}),
    jobs=[Job(id="a", workload="VAE", total_steps=100.0)],
    mechanism=create_mechanism("max-min", None, 10.0),
)
COSTS = TransitionCosts(preload_s=1.0, resume_s=2.0, leave_s=1.0)
LEASE = MeasuredLease(accelerator="p100", kind="first", start_s=4.0, leave_s=3.0, steps_per_s=20.0)


@pytest.mark.parametrize(
    ("lease", "end"),
    [
        (LEASE, 4.0 + 5.0 + 3.0),
        (replace(LEASE, start_s=None, leave_s=None), 1.0 + 5.0 + 1.0),
        (replace(LEASE, accelerator="v100"), 4.0 + 10.0 + 3.0),
        (replace(LEASE, kind="move"), 1.0 + 5.0 + 3.0),
    ],
)
def test_a_measured_lease_replaces_costs_and_speed(lease: MeasuredLease, end: float) -> None:
    physics = Physics.with_costs(COSTS, {"a": [lease]})
    record, _ = simulate(replace(SCENARIO, physics=physics))
    assert record.finished_at == pytest.approx([end])


def test_later_leases_take_the_values_of_later_ones() -> None:
    rival = Job(id="b", workload="VAE", total_steps=1e9, arrival_at=1.0)
    again = replace(LEASE, kind="resume", start_s=0.5, steps_per_s=50.0)
    physics = Physics.with_costs(COSTS, {"a": [replace(LEASE, steps_per_s=5.0), again]})
    scenario = replace(SCENARIO, jobs=[*SCENARIO.jobs, rival], window=(0, 1), intervals=True)
    record, _ = simulate(replace(scenario, physics=physics))
    assert record.intervals is not None
    job, _, _, start, end = record.intervals.columns()
    assert start[job == 0][0] == 0.0
    stopped, resumed = end[job == 0][0] - 3.0, start[job == 0][1]
    steps = 5.0 * (stopped - 4.0)
    assert record.finished_at[0] == pytest.approx(resumed + 0.5 + (100.0 - steps) / 50.0 + 3.0)


def test_a_plan_takes_effect_when_it_is_computed() -> None:
    record, _ = simulate(replace(SCENARIO, plan_s=0.5))
    assert record.finished_at == pytest.approx([10.5])
