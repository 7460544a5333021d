"""The total, cost and packed policies against the original Gavel, instance by instance.

Its packed policies crash or return nothing on all but the first instance, where jobs have equal
numbers of partners; its cost policy maximises Σ (speed / price) · time without counting a gang's
devices, which is ``cost:sum`` here.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.shared_data import SHARED, needs_shared, shared

from fairlead.files import read_speeds
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies.base import effective_speed
from fairlead.registry import create

pytestmark = needs_shared

PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}


def _instances() -> list[dict[str, Any]]:
    if SHARED is None:
        return []
    loaded: list[dict[str, Any]] = json.loads(
        (SHARED / "reference/gavel/allocations.json").read_text()
    )
    return loaded


@pytest.fixture(scope="module")
def speeds() -> SpeedTable:
    return read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))


def _snapshot(case: dict[str, Any], speeds: SpeedTable | None = None) -> Snapshot:
    jobs = tuple(
        InstanceJob(
            id=job["id"],
            workload=job["workload"],
            gang=job["gang"],
            weight=job["weight"],
            steps_left=job["steps_left"],
            speeds=job["throughputs"],
        )
        for job in case["jobs"]
    )
    details = {name: Accelerator(name, usd_per_hour=price) for name, price in PRICES.items()}
    cluster = Cluster.of(case["cluster"], details=details)
    return replace(snapshot_of(Instance(cluster, jobs)), speeds=speeds)


@pytest.mark.parametrize("case", _instances(), ids=lambda case: f"instance-{case['instance']}")
class TestInstance:
    def test_the_total_is_at_least_gavels(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = create("policies", "throughput").allocate(snap)
        gavels = case["gavel"]["max_sum_throughput_perf"]["total_throughput"]
        assert effective_speed(snap, allocation).sum() >= gavels * (1 - 1e-9)
        assert allocation.objective == pytest.approx(gavels, rel=1e-6)
        assert allocation.prove().gap <= 1e-9

    def test_the_sum_of_speed_over_price_is_at_least_gavels(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = create("policies", "cost:sum").allocate(snap)
        name = "max_sum_throughput_normalized_by_cost_perf"
        gavels = case["gavel"][name]["throughput_per_cost"]
        value = (snap.speed / snap.cluster.usd_per_hour * allocation.share).sum()
        assert value >= gavels * (1 - 1e-9)
        assert value == pytest.approx(gavels, rel=1e-6)
        assert allocation.objective == pytest.approx(value, rel=1e-9)

    def test_the_ratio_is_at_least_that_of_every_policy_of_gavel(
        self, case: dict[str, Any]
    ) -> None:
        """Costs of Gavel's policies are not published, but no allocation beats the best option."""
        snap = _snapshot(case)
        allocation = create("policies", "cost").allocate(snap)
        per_usd = snap.speed / (snap.gang[:, None] * snap.cluster.usd_per_hour)
        assert allocation.objective == pytest.approx(per_usd.max(), rel=1e-12)
        speed = effective_speed(snap, allocation)
        spent = (allocation.share * snap.gang[:, None] * snap.cluster.usd_per_hour).sum()
        assert speed.sum() / spent == pytest.approx(allocation.objective, rel=1e-12)

    def test_packed_max_min_is_at_least_gavels(
        self, case: dict[str, Any], speeds: SpeedTable
    ) -> None:
        snap = _snapshot(case, speeds)
        allocation = create("policies", "max-min:packed").allocate(snap)
        assert allocation.prove().gap <= 1e-6
        best = max(
            case["gavel"][name].get("max_min_norm", 0.0)
            for name in case["gavel"]
            if name.startswith("max_min_fairness")
        )
        assert best > 0
        assert allocation.objective >= best * (1 - 1e-6)
        assert allocation.objective >= case["exact_lexicographic_sorted"][0] * (1 - 1e-6)

    def test_packed_makespan_is_at_most_the_unpacked_optimum(
        self, case: dict[str, Any], speeds: SpeedTable
    ) -> None:
        allocation = create("policies", "makespan:packed").allocate(_snapshot(case, speeds))
        assert allocation.objective <= case["exact_makespan_s"] * (1 + 1e-6)
        assert allocation.prove().gap <= 1e-6

    def test_packed_total_is_at_least_the_unpacked(
        self, case: dict[str, Any], speeds: SpeedTable
    ) -> None:
        snap = _snapshot(case, speeds)
        for policy in ("throughput", "cost", "cost:sum"):
            alone = create("policies", policy).allocate(snap)
            option = ",packed" if ":" in policy else ":packed"
            packed = create("policies", policy + option).allocate(snap)
            assert packed.objective >= alone.objective * (1 - 1e-9), policy

    def test_shortest_first_serves_the_shortest_job_on_its_fastest_accelerator(
        self, case: dict[str, Any]
    ) -> None:
        snap = _snapshot(case)
        share = create("policies", "sjf").allocate(snap).share
        left_s = snap.steps_left[:, None] / np.maximum(snap.speed, 1e-300)
        row, accelerator = np.unravel_index(left_s.argmin(), left_s.shape)
        assert share[row, accelerator] == 1.0
        assert ((share * snap.gang[:, None]).sum(axis=0) <= snap.capacity).all()
