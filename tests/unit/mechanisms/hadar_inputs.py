"""Snapshots and scenarios for Hadar's tests."""

from typing import Any

from hypothesis import HealthCheck, settings
from tests.properties.sim.test_simulation import SPEEDS

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.sim.scenario import Scenario

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def snapshot(cluster: Cluster, *jobs: tuple[int, tuple[float, ...], float]) -> Snapshot:
    """Return jobs (gang, speeds, steps) that wait for a cluster in which nothing runs."""
    listed = tuple(
        InstanceJob(
            id=str(i),
            gang=gang,
            speeds=dict(zip(cluster.accelerators, speeds, strict=True)),
            steps_left=steps,
        )
        for i, (gang, speeds, steps) in enumerate(jobs)
    )
    return snapshot_of(Instance(cluster, listed))


def scenario(cluster: Cluster, jobs: list[Job], mechanism: Any, **more: Any) -> Scenario:
    return Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=mechanism, **more)
