"""Refills see only the jobs that decide them, and start the same jobs as with all of them."""

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
    from_candidates: list[int] = field(default_factory=list, hash=False, compare=False)
    """jobs in the snapshots of refills that the candidates alone decided"""

    @property
    def refill_ignores_running(self) -> bool:
        return not self.whole and super().refill_ignores_running

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        self.running.append(int((snap.on >= 0).sum()))
        return super().refill(snap, memory, idle)

    def refill_from_candidates(
        self, snap: Snapshot, memory: Any, idle: IntArray
    ) -> Placements | None:
        started = super().refill_from_candidates(snap, memory, idle)
        if started is not None:
            self.running.append(int((snap.on >= 0).sum()))
            self.from_candidates.append(len(snap.job))
        return started


def _run(
    policy: str, tenants: tuple[Tenant, ...], *, whole: bool
) -> tuple[Record, CountedRefills]:
    mechanism = CountedRefills(create_policy(policy), whole=whole)
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=generate(RECIPE, SPEEDS, random.Random(3), CLUSTER),
        mechanism=mechanism,
        tenants=tenants,
        restore_cost_s=30.0,
    )
    return simulate(scenario)[0], mechanism


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
    record, refills = _run(policy, tenants, whole=False)
    other, with_all = _run(policy, tenants, whole=True)
    guaranteed = any(tenant.guarantee for tenant in tenants)
    assert any(with_all.running)
    assert not with_all.from_candidates
    assert any(refills.running) == (policy != "max-min" or guaranteed)
    assert bool(refills.from_candidates) == (policy == "max-min" and not guaranteed)
    assert len(refills.from_candidates) < len(refills.running)
    assert len(refills.running) == len(with_all.running)
    for column in ("started_at", "finished_at", "preemptions", "migrations", "device_s"):
        assert np.array_equal(getattr(record, column), getattr(other, column)), column
