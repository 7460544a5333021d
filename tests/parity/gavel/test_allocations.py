"""Allocations against those of the original Gavel and exact values, instance by instance."""

import json
from typing import Any

import numpy as np
import pytest
from tests.support.shared_data import SHARED, needs_shared

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import effective_speed
from fairlead.registry import create

pytestmark = needs_shared


def _instances() -> list[dict[str, Any]]:
    if SHARED is None:
        return []
    loaded: list[dict[str, Any]] = json.loads(
        (SHARED / "reference/gavel/allocations.json").read_text()
    )
    return loaded


def _snapshot(case: dict[str, Any]) -> Snapshot:
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
    return snapshot_of(Instance(Cluster.of(case["cluster"]), jobs))


def _normalised(snap: Snapshot, speed: np.ndarray) -> np.ndarray:
    mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
    return np.sort(speed * snap.gang / (snap.weight * mean))


@pytest.mark.parametrize("case", _instances(), ids=lambda case: f"instance-{case['instance']}")
class TestInstance:
    def test_max_min_reaches_the_exact_lexicographic_optimum(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = create("policies", "max-min").allocate(snap)
        normalised = _normalised(snap, effective_speed(snap, allocation))
        np.testing.assert_allclose(normalised, case["exact_lexicographic_sorted"], rtol=1e-6)
        gavels = case["gavel"]["max_min_fairness_perf"]["max_min_norm"]
        assert normalised[0] >= gavels * (1 - 1e-6)

    def test_agnostic_max_min_gives_every_job_at_least_gavels_least_time(
        self, case: dict[str, Any]
    ) -> None:
        snap = _snapshot(case)
        share = create("policies", "max-min:agnostic").allocate(snap).share
        time = share.sum(axis=1) * snap.gang / snap.weight
        demand = snap.gang / snap.weight
        # All time counts the same, so the optimum is a common level, capped by the whole time.
        level = _water_level(demand, snap.gang.astype(float), float(snap.capacity.sum()))
        np.testing.assert_allclose(time.min(), min(level, demand.min()), rtol=1e-6)

    def test_makespan_is_exact(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = create("policies", "makespan").allocate(snap)
        longest = (snap.steps_left / effective_speed(snap, allocation)).max()
        assert longest == pytest.approx(case["exact_makespan_s"], rel=1e-6)
        assert allocation.objective == pytest.approx(longest, rel=1e-9)
        assert allocation.prove is not None
        assert allocation.prove().gap <= 1e-6

    def test_shares_fit_the_time_and_the_devices(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        for policy in ("max-min", "max-min:agnostic", "makespan", "makespan:agnostic", "isolated"):
            share = create("policies", policy).allocate(snap).share
            assert (share >= 0).all()
            assert (share.sum(axis=1) <= 1 + 1e-9).all(), policy
            used = (share * snap.gang[:, None]).sum(axis=0)
            assert (used <= snap.capacity * (1 + 1e-9)).all(), policy

    def test_a_checker_recomputes_the_bound_from_the_prices(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = create("policies", "max-min").allocate(snap)
        assert allocation.prove is not None
        proof = allocation.prove()
        mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
        gain = snap.speed * (snap.gang / (snap.weight * mean))[:, None]
        bound = _bound_by_bisection(gain, snap.gang, snap.capacity, proof.prices)
        assert bound == pytest.approx(proof.bound, rel=1e-9)
        assert allocation.objective is not None
        assert allocation.objective <= bound * (1 + 1e-9)
        assert allocation.objective >= bound * (1 - 1e-6)


def _water_level(cap: np.ndarray, gang: np.ndarray, devices: float) -> float:
    """Return t with Σ gang · min(t, cap) / cap = devices, the cap being reached at time 1."""
    low, high = 0.0, float(cap.max())
    for _ in range(200):
        middle = (low + high) / 2
        if (gang * np.minimum(middle, cap) / cap).sum() <= devices:
            low = middle
        else:
            high = middle
    return high


def _bound_by_bisection(
    gain: np.ndarray, gang: np.ndarray, capacity: np.ndarray, prices: np.ndarray
) -> float:
    """Return the greatest level that the cluster can pay for at these prices.

    Written from the definition alone: at most two accelerators are mixed, so every pair (and
    idling) is tried.
    """

    def cost(level: float) -> float:
        total = 0.0
        for row, size in zip(gain, gang, strict=True):
            points = [(0.0, 0.0), *zip(row, size * prices, strict=True)]
            ways = [
                p + (q - p) * (level - a) / (b - a)
                for a, p in points
                for b, q in points
                if a <= level <= b and a < b
            ]
            total += min(ways, default=np.inf)
        return total

    worth = float((capacity * prices).sum())
    low, high = 0.0, float(gain.max(axis=1).min())
    if cost(high) <= worth * (1 + 1e-12):
        return high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= worth else (low, middle)
    return low
