"""Simulated leases keep their devices until they have trained for as long as their start took."""

import numpy as np

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.effects import Physics, TransitionCosts
from fairlead.sim.scenario import Scenario

START_S, ROUND_S = 20.0, 100.0


def shortest_preempted_s(*, protect_starts: bool) -> float:
    """Return the length of the shortest lease that a plan has ended."""
    costs = TransitionCosts(preload_s=START_S, resume_s=START_S, migrate_s=START_S, leave_s=0.0)
    # The second job starts 30 s before the end of a round, in which the third one should begin.
    other = Job(id="other", workload="w", total_steps=1000.0, weight=100.0)
    first = Job(id="first", workload="w", total_steps=50.0, weight=100.0)
    second = Job(id="second", workload="w", total_steps=1000.0)
    third = Job(id="third", workload="w", total_steps=1000.0, weight=100.0, arrival_at=80.0)
    scenario = Scenario(
        cluster=Cluster.of({"v100": 2}),
        speeds=SpeedTable({SpeedKey("w", 1, "v100"): 1.0}),
        jobs=(other, first, second, third),
        mechanism=create_mechanism("max-min", None, ROUND_S),
        protect_starts=protect_starts,
        physics=Physics.with_costs(costs),
        intervals=True,
    )
    record, _ = simulate(scenario)
    assert record.intervals is not None
    job, _, _, start, end = record.intervals.columns()
    preempted = end < record.finished_at[job]
    assert preempted.any()
    assert np.isfinite(record.finished_at).all()
    return float((end - start)[preempted].min())


def test_a_lease_first_trains_for_as_long_as_its_start_took() -> None:
    assert shortest_preempted_s(protect_starts=False) < 2 * START_S
    assert shortest_preempted_s(protect_starts=True) >= 2 * START_S
