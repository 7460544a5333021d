"""Jobs that need other numbers of devices on other accelerators, against plain linear programs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import effective_speed
from fairlead.policies.rules.priority import policy_named

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
    """Return jobs of few profiles, about half of which need other numbers elsewhere."""
    rng = np.random.default_rng(seed)
    counts = {kind: int(rng.integers(2, 7)) for kind in KINDS}
    shapes = []
    for _ in range(3):
        gang = int(rng.integers(1, 3))
        able = [kind for kind in KINDS if rng.random() < 0.85] or ["v100"]
        gangs = {kind: int(rng.integers(1, counts[kind] + 1)) for kind in able[1:]}
        speeds = {kind: float(rng.uniform(0.5, 5.0)) for kind in able}
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
    """Return jobs × accelerators → max-min's level of all time there, from its definition."""
    gang = np.broadcast_to(snap.gang_on, snap.speed.shape)
    mean = (snap.speed / gang * snap.capacity).sum(axis=1) / snap.capacity.sum()
    level: FloatArray = snap.speed / (mean * snap.weight)[:, None]
    return level


def greatest(
    gain: FloatArray, gang: FloatArray, capacity: FloatArray, floor: FloatArray, rising: FloatArray
) -> float:
    """Return how high the rising jobs can stand together while the others keep their floor.

    One variable a job and accelerator, and the height; nothing else.
    """
    n, kinds = gain.shape
    reach = np.zeros((n, n * kinds + 1))
    time = np.zeros((n, n * kinds + 1))
    held = np.zeros((kinds, n * kinds + 1))
    for m in range(n):
        cells = slice(m * kinds, (m + 1) * kinds)
        reach[m, cells], time[m, cells] = -gain[m], 1.0
        reach[m, -1] = 1.0 if rising[m] else 0.0
        held[np.arange(kinds), m * kinds + np.arange(kinds)] = gang[m]
    asked = np.where(rising, 0.0, -np.maximum(floor - 1e-10, 0.0))
    upper = [(0.0, None if g > 0 else 0.0) for g in gain.ravel()] + [(0.0, None)]
    found = linprog(
        np.append(np.zeros(n * kinds), -1.0),
        A_ub=np.vstack([reach, time, held]),
        b_ub=np.concatenate([asked, np.ones(n), capacity]),
        bounds=upper,
        method="highs",
    )
    assert found.status == 0, found.message
    return float(-found.fun)


def lexicographic(gain: FloatArray, gang: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return the lexicographically greatest levels, one program a level and one a job."""
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
def test_max_min_is_the_plain_programs_lexicographic_optimum(seed: int) -> None:
    snap = snapshot(seed)
    gain = fitting(snap, normalised(snap))
    found = policy_named("max-min").allocate(snap)
    level = (gain * found.share).sum(axis=1)
    gang = np.broadcast_to(snap.gang_on, gain.shape).astype(float)
    exact = lexicographic(gain, gang, snap.devices)
    np.testing.assert_allclose(np.sort(level), np.sort(exact), rtol=1e-6)
    np.testing.assert_allclose(level, exact, rtol=1e-6)
    assert found.prove is not None
    proof = found.prove()
    assert abs(proof.gap) < 1e-6
    assert proof.bound >= level.min() * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_makespan_is_the_plain_programs(seed: int) -> None:
    snap = snapshot(seed)
    gain = fitting(snap, snap.speed / snap.steps_left[:, None])
    found = policy_named("makespan").allocate(snap)
    gang = np.broadcast_to(snap.gang_on, gain.shape).astype(float)
    everyone = np.ones(len(gain), dtype=bool)
    exact = greatest(gain, gang, snap.devices, np.zeros(len(gain)), everyone)
    assert found.objective == pytest.approx(1.0 / exact, rel=1e-6)
    assert effective_speed(snap, found) @ np.ones(len(gain)) > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_gives_out_more_devices_or_time_than_there_are(policy: str) -> None:
    differing = 0
    for seed in range(40):
        snap = snapshot(seed)
        share = policy_named(policy).allocate(snap).share
        assert (share >= 0).all()
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert (devices_held(snap, share) <= snap.capacity + 1e-6).all()
        assert (share[snap.speed <= 0] == 0).all()
        assert (share[~(snap.gang_on <= snap.capacity)] == 0).all()
        used = share > 1e-9
        differing += bool((used & (snap.gang_on != snap.gang[:, None])).any())
    assert differing > 5  # else nobody was where it needs another number


@pytest.mark.parametrize("policy", POLICIES)
def test_numbers_that_are_all_alike_are_a_gang(policy: str) -> None:
    for seed in range(8):
        cluster = snapshot(seed).cluster
        speeds = [{"v100": 2.0 + i, "k80": 1.0} for i in range(3)]
        both = {"v100": 2, "k80": 2}
        gangs = [InstanceJob(id=f"j{i}", speeds=s, gang=2) for i, s in enumerate(speeds)]
        numbers = [InstanceJob(id=f"j{i}", speeds=s, gangs=both) for i, s in enumerate(speeds)]
        expected, found = (
            policy_named(policy).allocate(snapshot_of(Instance(cluster, tuple(jobs)))).share
            for jobs in (gangs, numbers)
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_equal_numbers_reach_the_levels_of_gangs(seed: int) -> None:
    """The program over options, forced upon jobs that do not need it, finds the same levels."""
    rng = np.random.default_rng(seed)
    jobs = tuple(
        InstanceJob(
            id=f"j{i}",
            gang=int(rng.choice([1, 1, 2])),
            speeds={kind: float(rng.uniform(0.5, 5.0)) for kind in KINDS},
        )
        for i in range(6)
    )
    snap = snapshot_of(Instance(Cluster.of(dict.fromkeys(KINDS, 2)), jobs))
    gangs = np.repeat(snap.profiles.gang[:, None], len(KINDS), axis=1)
    forced = replace(snap, profiles=replace(snap.profiles, gangs=gangs))
    for policy in ("max-min", "makespan", "finish-time", "hierarchical"):
        found = policy_named(policy)
        expected = effective_speed(snap, found.allocate(snap))
        reached = effective_speed(forced, found.allocate(forced))
        np.testing.assert_allclose(reached, expected, rtol=1e-6)


def test_limits_and_guarantees_count_the_devices_really_held() -> None:
    tenants = (
        Tenant("limited", limit={"k80": 1.5, "v100": 1.0}),
        Tenant("promised", guarantee={"v100": 1.0}),
        Tenant("other"),
    )
    bound = 0
    for seed in range(25):
        snap = snapshot(seed, tenants=tenants, most=9)
        for policy in ("max-min", "makespan", "throughput", "isolated"):
            share = policy_named(policy).allocate(snap).share
            mine = snap.tenant == 0
            held = (share * snap.gang_on)[mine].sum(axis=0)
            assert held[0] <= 1.0 + 1e-6
            assert held[2] <= 1.5 + 1e-6
            bound += held[2] > 1.4
    assert bound > 0


def test_ranks_leave_to_the_next_what_the_first_do_not_hold() -> None:
    cluster = Cluster.of({"v100": 1, "k80": 4})
    first = InstanceJob(id="first", speeds={"k80": 1.0}, gangs={"k80": 3}, priority=1)
    second = InstanceJob(
        id="second", speeds={"v100": 2.0, "k80": 1.0}, gangs={"k80": 2}, weight=1.0
    )
    third = InstanceJob(id="third", speeds={"k80": 1.0})
    snap = snapshot_of(Instance(cluster, (first, second, third)))
    share = policy_named("max-min").allocate(snap).share
    np.testing.assert_allclose(share[:, 1], [1.0, 0.0, 1.0], atol=1e-9)
    assert share[1, 0] == pytest.approx(1.0)
