"""The fluid simulation's record, against what can be computed by hand."""

import pytest

from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario


def test_jobs_of_fewer_than_a_hundred_steps_have_made_their_first_steps_when_they_end() -> None:
    steps = [99.0, 1.0, 7.3, 100.0, 40.1, 1000.0]
    jobs = [
        Job(id=f"j{i}", workload="m", total_steps=total, arrival_at=i * 1.7)
        for i, total in enumerate(steps)
    ]
    record, _ = simulate(
        Scenario(
            cluster=Cluster.of({"v100": 3}),
            speeds=SpeedTable({SpeedKey("m", 1, "v100"): 3.7}),
            jobs=jobs,
            mechanism=create_mechanism("max-min", "ideal", 60.0),
        )
    )
    assert record.first_steps_at[:5].tolist() == pytest.approx(record.finished_at[:5].tolist())
    assert jobs[5].arrival_at + 100 / 3.7 <= record.first_steps_at[5] < record.finished_at[5]
