"""Jobs whose gang differs by accelerator, against plain linear programs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import effective_speed
from fairlead.policies.rules.priority import create_policy

KINDS = ("v100", "p100", "k80")
PRICES = {
    kind: Accelerator(kind, usd_per_hour=price)
    for kind, price in (("v100", 2.0), ("p100", 1.0), ("k80", 0.3))
}
POLICIES = (
    "max-min",
    "max-min:agnostic",
    "makespan",
    "makespan:agnostic",
    "finish-time",
    "fairlead",
    "hierarchical",
    "hierarchical:inner=fifo",
    "throughput",
    "cost",
    "cost:sum",
    "cost-slo",
    "fifo",
    "sjf",
    "isolated",
)


def snapshot(seed: int, *, most: int = 7, tenants: tuple[Tenant, ...] = ()) -> Snapshot:
    """Return jobs of few profiles, about half of them with gangs that differ by accelerator."""
    rng = np.random.default_rng(seed)
    counts = {accelerator: int(rng.integers(2, 7)) for accelerator in KINDS}
    shapes = []
    for _ in range(3):
        gang = int(rng.integers(1, 3))
        able = [accelerator for accelerator in KINDS if rng.random() < 0.85] or ["v100"]
        gangs = {
            accelerator: int(rng.integers(1, counts[accelerator] + 1)) for accelerator in able[1:]
        }
        speeds = {accelerator: float(rng.uniform(0.5, 5.0)) for accelerator in able}
        shapes.append((gang, gangs if rng.random() < 0.7 else {}, speeds))
    jobs = []
    for i in range(int(rng.integers(2, most + 1))):
        gang, gangs, speeds = shapes[int(rng.integers(3))]
        jobs.append(
            InstanceJob(
                id=f"j{i}",
                gang=gang,
                gangs=gangs,
                speeds=speeds,
                weight=float(rng.choice([1.0, 1.0, 2.0])),
                steps_left=float(rng.choice([100.0, 400.0])),
                tenant=tenants[i % len(tenants)].id if tenants else "default",
                deadline_s=200.0 if rng.random() < 0.3 else None,
            )
        )
    return snapshot_of(Instance(Cluster.of(counts, details=PRICES), tuple(jobs), tenants))


def normalised(snap: Snapshot) -> FloatArray:
    """Return jobs × accelerators → level of max-min with all of the time there."""
    gang = np.broadcast_to(snap.gang_on, snap.speed.shape)
    mean = (snap.speed / gang * snap.capacity).sum(axis=1) / snap.capacity.sum()
    level: FloatArray = snap.speed / (mean * snap.weight)[:, None]
    return level


def greatest(
    gain: FloatArray, gang: FloatArray, capacity: FloatArray, floor: FloatArray, rising: FloatArray
) -> float:
    """Return the greatest common level of the rising jobs while the others keep their floor.

    One variable a job and accelerator, and the height; nothing else.
    """
    n, accelerators = gain.shape
    reach = np.zeros((n, n * accelerators + 1))
    time = np.zeros((n, n * accelerators + 1))
    held = np.zeros((accelerators, n * accelerators + 1))
    for m in range(n):
        cells = slice(m * accelerators, (m + 1) * accelerators)
        reach[m, cells], time[m, cells] = -gain[m], 1.0
        reach[m, -1] = 1.0 if rising[m] else 0.0
        held[np.arange(accelerators), m * accelerators + np.arange(accelerators)] = gang[m]
    floors = np.where(rising, 0.0, -np.maximum(floor - 1e-10, 0.0))
    upper = [(0.0, None if g > 0 else 0.0) for g in gain.ravel()] + [(0.0, None)]
    solution = linprog(
        np.append(np.zeros(n * accelerators), -1.0),
        A_ub=np.vstack([reach, time, held]),
        b_ub=np.concatenate([floors, np.ones(n), capacity]),
        bounds=upper,
        method="highs",
    )
    assert solution.status == 0, solution.message
    return float(-solution.fun)


def lexicographic(gain: FloatArray, gang: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return the lexicographically greatest levels, with one program per level and job."""
    n = len(gain)
    level, fixed = np.zeros(n), np.zeros(n, dtype=bool)
    while not fixed.all():
        height = greatest(gain, gang, capacity, level, ~fixed)
        level = np.where(fixed, level, height)
        for m in np.flatnonzero(~fixed).tolist():
            alone = np.arange(n) == m
            if greatest(gain, gang, capacity, level, alone) <= height + 1e-7:
                fixed[m] = True
    return level


def fitting(snap: Snapshot, gain: FloatArray) -> FloatArray:
    return np.where(snap.gang_on <= snap.capacity, gain, 0.0)


def devices_held(snap: Snapshot, share: FloatArray) -> FloatArray:
    held: FloatArray = (share * snap.gang_on).sum(axis=0)
    return held


@pytest.mark.parametrize("seed", range(60))
def test_max_min_agrees_with_the_lexicographic_optimum_of_plain_programs(seed: int) -> None:
    snap = snapshot(seed)
    gain = fitting(snap, normalised(snap))
    allocation = create_policy("max-min").allocate(snap)
    level = (gain * allocation.share).sum(axis=1)
    gang = np.broadcast_to(snap.gang_on, gain.shape).astype(float)
    exact = lexicographic(gain, gang, snap.devices)
    np.testing.assert_allclose(np.sort(level), np.sort(exact), rtol=1e-6)
    np.testing.assert_allclose(level, exact, rtol=1e-6)
    assert allocation.prove is not None
    proof = allocation.prove()
    assert abs(proof.gap) < 1e-6
    assert proof.bound >= level.min() * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_makespan_agrees_with_a_plain_program(seed: int) -> None:
    snap = snapshot(seed)
    gain = fitting(snap, snap.speed / snap.steps_left[:, None])
    allocation = create_policy("makespan").allocate(snap)
    gang = np.broadcast_to(snap.gang_on, gain.shape).astype(float)
    everyone = np.ones(len(gain), dtype=bool)
    exact = greatest(gain, gang, snap.devices, np.zeros(len(gain)), everyone)
    assert allocation.objective == pytest.approx(1.0 / exact, rel=1e-6)
    assert effective_speed(snap, allocation) @ np.ones(len(gain)) > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_exceeds_devices_or_time(policy: str) -> None:
    differing = 0
    for seed in range(40):
        snap = snapshot(seed)
        share = create_policy(policy).allocate(snap).share
        assert (share >= 0).all()
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert (devices_held(snap, share) <= snap.capacity + 1e-6).all()
        assert (share[snap.speed <= 0] == 0).all()
        assert (share[~(snap.gang_on <= snap.capacity)] == 0).all()
        used = share > 1e-9
        differing += bool((used & (snap.gang_on != snap.gang[:, None])).any())
    assert differing > 5  # else nobody was where it needs another number


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_numbers_are_a_gang(policy: str) -> None:
    for seed in range(8):
        cluster = snapshot(seed).cluster
        speeds = [{"v100": 2.0 + i, "k80": 1.0} for i in range(3)]
        both = {"v100": 2, "k80": 2}
        gangs = [InstanceJob(id=f"j{i}", speeds=s, gang=2) for i, s in enumerate(speeds)]
        numbers = [InstanceJob(id=f"j{i}", speeds=s, gangs=both) for i, s in enumerate(speeds)]
        expected, result = (
            create_policy(policy).allocate(snapshot_of(Instance(cluster, tuple(jobs)))).share
            for jobs in (gangs, numbers)
        )
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_equal_numbers_reach_the_levels_of_gangs(seed: int) -> None:
    """The program over options reaches the same levels for jobs with plain gangs."""
    rng = np.random.default_rng(seed)
    jobs = tuple(
        InstanceJob(
            id=f"j{i}",
            gang=int(rng.choice([1, 1, 2])),
            speeds={accelerator: float(rng.uniform(0.5, 5.0)) for accelerator in KINDS},
        )
        for i in range(6)
    )
    snap = snapshot_of(Instance(Cluster.of(dict.fromkeys(KINDS, 2)), jobs))
    gangs = np.repeat(snap.profiles.gang[:, None], len(KINDS), axis=1)
    forced = replace(snap, profiles=replace(snap.profiles, gangs=gangs))
    for policy in ("max-min", "makespan", "finish-time", "hierarchical"):
        result = create_policy(policy)
        expected = effective_speed(snap, result.allocate(snap))
        reached = effective_speed(forced, result.allocate(forced))
        np.testing.assert_allclose(reached, expected, rtol=1e-6)


def test_limits_and_guarantees_count_the_devices_held() -> None:
    tenants = (
        Tenant("limited", limit={"k80": 1.5, "v100": 1.0}),
        Tenant("promised", guarantee={"v100": 1.0}),
        Tenant("other"),
    )
    bound = 0
    for seed in range(25):
        snap = snapshot(seed, tenants=tenants, most=9)
        for policy in ("max-min", "makespan", "throughput", "isolated"):
            share = create_policy(policy).allocate(snap).share
            mine = snap.tenant == 0
            held = (share * snap.gang_on)[mine].sum(axis=0)
            assert held[0] <= 1.0 + 1e-6
            assert held[2] <= 1.5 + 1e-6
            bound += held[2] > 1.4
    assert bound > 0


def test_the_next_rank_gets_the_remaining_devices() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 4})
    first = InstanceJob(id="first", speeds={"k80": 1.0}, gangs={"k80": 3}, priority=1)
    second = InstanceJob(
        id="second", speeds={"v100": 2.0, "k80": 1.0}, gangs={"k80": 2}, weight=1.0
    )
    third = InstanceJob(id="third", speeds={"k80": 1.0})
    snap = snapshot_of(Instance(cluster, (first, second, third)))
    share = create_policy("max-min").allocate(snap).share
    np.testing.assert_allclose(share[:, 1], [1.0, 0.0, 1.0], atol=1e-9)
    assert share[1, 0] == pytest.approx(1.0)
