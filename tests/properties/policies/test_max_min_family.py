"""Properties of the max-min family on 500 random instances each."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import effective_speed, mean_speed
from fairlead.policies.rules.priority import create_policy

KINDS = ("v100", "p100", "k80")
PRICES = {
    kind: Accelerator(kind, usd_per_hour=price)
    for kind, price in (("v100", 2.0), ("p100", 1.0), ("k80", 0.3))
}
EVERYTHING = (
    "max-min",
    "max-min:agnostic",
    "makespan",
    "makespan:agnostic",
    "fifo",
    "sjf",
    "isolated",
    "throughput",
    "cost",
    "cost:sum",
    "cost-slo",
    "fairlead",
)


def instances(count: int, *, scale: bool = False) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Yield random snapshots, and the same with each job's speeds scaled by its own factor."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        counts = {accelerator: int(rng.integers(1, 6)) for accelerator in KINDS}
        jobs, scaled = [], []
        for i in range(int(rng.integers(1, 14))):
            gang = int(rng.integers(1, 3))
            able = [k for k in KINDS if counts[k] >= gang and rng.random() < 0.85]
            able = able or [max(counts, key=lambda k: counts[k])]
            gang = min(gang, max(counts[k] for k in able))
            speeds = {accelerator: float(rng.uniform(0.3, 5.0)) for accelerator in able}
            common: dict[str, Any] = {
                "id": f"j{i}",
                "workload": f"w{i}",
                "gang": gang,
                "weight": float(rng.choice([0.5, 1.0, 1.0, 3.0])),
                "deadline_s": float(rng.uniform(50, 500)) if rng.random() < 0.3 else None,
            }
            steps, factor = float(rng.uniform(10, 1000)), float(rng.uniform(0.01, 100.0))
            jobs.append(InstanceJob(**common, speeds=speeds, steps_left=steps))
            more = {accelerator: factor * speed for accelerator, speed in speeds.items()}
            scaled.append(InstanceJob(**common, speeds=more, steps_left=steps * factor))
        cluster = Cluster.of(counts, details=PRICES)
        first = snapshot_of(Instance(cluster, tuple(jobs)))
        yield first, snapshot_of(Instance(cluster, tuple(scaled))) if scale else first


def level(snap: Snapshot, policy: str) -> FloatArray:
    """Return jobs → normalised speed over weight."""
    speed = effective_speed(snap, create_policy(policy).allocate(snap))
    return snap.gang * speed / (snap.weight * mean_speed(snap.speed, snap.capacity))


@pytest.mark.parametrize("policy", EVERYTHING)
def test_shares_are_feasible(policy: str) -> None:
    for seed, (snap, _) in enumerate(instances(500)):
        share = create_policy(policy).allocate(snap).share
        assert (share >= 0).all(), seed
        assert (share.sum(axis=1) <= 1 + 1e-9).all(), seed
        assert ((share * snap.gang[:, None]).sum(axis=0) <= snap.capacity + 1e-7).all(), seed
        assert (share[snap.speed <= 0] == 0).all(), seed


def test_the_least_level_of_max_min_is_not_below_that_of_an_equal_split() -> None:
    better = 0
    for seed, (snap, _) in enumerate(instances(500)):
        fair, split = level(snap, "max-min").min(), level(snap, "isolated").min()
        assert fair >= split * (1 - 1e-9), seed
        better += fair > split * 1.01
    assert better > 250


def test_makespan_is_no_longer_than_that_of_an_equal_split() -> None:
    for seed, (snap, _) in enumerate(instances(500)):
        ours, split = (
            effective_speed(snap, create_policy(policy).allocate(snap))
            for policy in ("makespan", "isolated")
        )
        with np.errstate(divide="ignore"):
            last, other = (snap.steps_left / ours).max(), (snap.steps_left / split).max()
        assert last <= other * (1 + 1e-9), seed


@pytest.mark.parametrize("policy", ["max-min", "makespan"])
def test_scaling_all_speeds_of_a_job_changes_no_share(policy: str) -> None:
    for seed, (snap, scaled) in enumerate(instances(500, scale=True)):
        ours = level(snap, policy)
        again = level(scaled, policy)
        assert again == pytest.approx(ours, rel=1e-6, abs=1e-9), seed


@pytest.mark.parametrize("policy", ["max-min", "makespan"])
def test_agnostic_equals_aware_on_one_accelerator(policy: str) -> None:
    for seed in range(500):
        rng = np.random.default_rng(seed)
        jobs = tuple(
            InstanceJob(
                id=f"j{i}",
                gang=int(rng.integers(1, 4)),
                weight=float(rng.uniform(0.5, 2.0)),
                steps_left=float(rng.uniform(1, 99)),
                speeds={"v100": float(rng.uniform(0.1, 9.0))},
            )
            for i in range(int(rng.integers(1, 12)))
        )
        snap = snapshot_of(Instance(Cluster.of({"v100": int(rng.integers(3, 9))}), jobs))
        aware, blind = (
            create_policy(p).allocate(snap).share for p in (policy, f"{policy}:agnostic")
        )
        assert blind == pytest.approx(aware, abs=1e-6), seed
