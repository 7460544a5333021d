"""Refills see the waiting jobs only where these decide, and start the same jobs as otherwise."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fairlead.files import read_speeds
from fairlead.mechanisms.shares import Shares
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

SPEEDS = read_speeds("gandiva-fair")
CLUSTER = Cluster.of({"v100": 4, "p100": 4, "k80": 4})
RECIPE = Recipe(
    kind="continuous-multiple", jobs=30, rate=60.0, tenants=2, duration_factor=0.05, max_gang=4
)


@dataclass(frozen=True)
class CountedRefills(Shares):
    """Rounds that count the jobs with devices in the snapshots of refills."""

    whole: bool = False
    """whether refills ask for all jobs"""
    running: list[int] = field(default_factory=list, hash=False, compare=False)

    @property
    def refill_ignores_running(self) -> bool:
        return not self.whole and super().refill_ignores_running

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        self.running.append(int((snap.on >= 0).sum()))
        return super().refill(snap, memory, idle)


def _run(policy: str, tenants: tuple[Tenant, ...], *, whole: bool) -> tuple[Record, list[int]]:
    mechanism = CountedRefills(create_policy(policy), whole=whole)
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=generate(RECIPE, SPEEDS, random.Random(3), CLUSTER),
        mechanism=mechanism,
        tenants=tenants,
        restore_cost_s=30.0,
    )
    return simulate(scenario)[0], mechanism.running


@pytest.mark.parametrize(
    ("policy", "tenants"),
    [
        ("max-min", ()),
        ("max-min", (Tenant("tenant-0", limit={"v100": 1.0}),)),
        ("max-min", (Tenant("tenant-0", guarantee={"v100": 2.0}),)),
        ("makespan", ()),
        ("fairlead", ()),
    ],
    ids=["alike", "limit", "guarantee", "makespan", "fairlead"],
)
def test_refills_start_the_same_jobs_with_and_without_running_ones(
    policy: str, tenants: tuple[Tenant, ...]
) -> None:
    record, running = _run(policy, tenants, whole=False)
    other, all_running = _run(policy, tenants, whole=True)
    guaranteed = any(tenant.guarantee for tenant in tenants)
    assert any(all_running)
    assert any(running) == (policy != "max-min" or guaranteed)
    assert len(running) == len(all_running)
    for column in ("started_at", "finished_at", "preemptions", "migrations", "device_s"):
        assert np.array_equal(getattr(record, column), getattr(other, column)), column
