"""Priorities: a higher rank is served as if lower ranks did not exist."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import effective_speed
from fairlead.policies.rules.priority import create_policy

CLUSTER = Cluster.of({"v100": 2, "k80": 2})
TENANTS = (Tenant("high", priority=5), Tenant("low"))


def jobs(*priorities: tuple[str, int], gang: int = 1) -> tuple[InstanceJob, ...]:
    return tuple(
        InstanceJob(
            id=f"j{i}",
            speeds={"v100": 2.0 + i, "k80": 1.0},
            tenant=tenant,
            priority=priority,
            gang=gang,
            workload=f"w{i}",
        )
        for i, (tenant, priority) in enumerate(priorities)
    )


@pytest.mark.parametrize("policy", ["max-min", "max-min:agnostic", "makespan"])
def test_a_higher_rank_has_the_shares_it_would_have_alone(policy: str) -> None:
    everyone = jobs(("low", 0), ("high", 0), ("low", 1), ("high", 0), ("high", 0))
    alone = tuple(job for job in everyone if job.tenant == "high")
    snap = snapshot_of(Instance(CLUSTER, everyone, TENANTS))
    snap_alone = snapshot_of(Instance(CLUSTER, alone, TENANTS))
    chosen = create_policy(policy)
    together = effective_speed(snap, chosen.allocate(snap))
    by_itself = effective_speed(snap_alone, chosen.allocate(snap_alone))
    assert together[[1, 3, 4]] == pytest.approx(by_itself, rel=1e-9)


def test_remaining_devices_go_to_the_next_rank_and_are_allocated_once() -> None:
    everyone = jobs(("low", 0), ("low", 2), ("low", 1), ("high", 0), ("high", 0), gang=1)
    snap = snapshot_of(Instance(CLUSTER, everyone, TENANTS))
    allocation = create_policy("max-min").allocate(snap)
    assert (allocation.share.sum(axis=0) <= CLUSTER.counts + 1e-9).all()
    busy = allocation.share.sum(axis=1)
    assert busy[[1, 2, 3, 4]] == pytest.approx(1.0)
    assert busy[0] == pytest.approx(0.0, abs=1e-9)


def test_gangs_share_a_fraction_that_a_higher_rank_leaves() -> None:
    # Three single jobs of high rank take 1.5 devices of each accelerator at most; the gang of two
    # below must still get the rest of the time on both.
    cluster = Cluster.of({"v100": 2})
    listed = (
        InstanceJob(id="first", speeds={"v100": 1.0}, priority=1, gang=2),
        InstanceJob(id="second", speeds={"v100": 1.0}, priority=1, gang=1),
        InstanceJob(id="below", speeds={"v100": 1.0}, gang=2),
    )
    snap = snapshot_of(Instance(cluster, listed))
    share = create_policy("max-min").allocate(snap).share[:, 0]
    assert share[1] == pytest.approx(1.0)
    assert share[0] == pytest.approx(0.5)
    assert share[2] == pytest.approx(0.0, abs=1e-9)
    half = replace(snap, room=np.array([1.5]))
    assert create_policy("max-min").allocate(half).share[:, 0] @ [2, 1, 2] == pytest.approx(1.5)


def test_without_priorities_the_policy_is_unchanged() -> None:
    snap = snapshot_of(Instance(CLUSTER, jobs(("low", 0), ("low", 0), ("low", 0))))
    chosen = create_policy("max-min")
    assert (chosen.allocate(snap).share == chosen.policy.allocate(snap).share).all()
