"""Options of pairs that are not computed again: the last table, and pairs near the last prices."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies._packing import kept_table, near_pairs
from fairlead.policies._packing.kept_table import KeptTable
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.policies.base import WarmStart
from fairlead.policies.fairlead import Fairlead
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.makespan import Makespan
from fairlead.solve.options.basis import Keys
from fairlead.solve.options.objectives import BestTimes
from fairlead.solve.options.pool import Prices
from fairlead.solve.options.warm_sum import WarmSum

KINDS, ACCELERATORS = "abcdef", ("v100", "k80")
CLUSTER = Cluster.of({"v100": 4, "k80": 4})
PACKED = UnitRules(packed=True)


def _speeds(rng: np.random.Generator) -> SpeedTable:
    """Return the speeds of workloads alone and beside each other."""
    speeds = {}
    for name in KINDS:
        for accelerator, base in zip(ACCELERATORS, rng.uniform(1.0, 4.0, 2), strict=True):
            speeds[SpeedKey(name, 1, accelerator)] = base
            for partner in KINDS:
                speeds[SpeedKey(name, 1, accelerator, partner=partner)] = base * rng.uniform(0, 1)
    return SpeedTable(speeds)


def _snapshot(seed: int, count: int) -> Snapshot:
    """Return jobs of random workloads; the same number of the same seed has the same workload."""
    rng = np.random.default_rng(seed)
    speeds = _speeds(rng)
    jobs = []
    for i in range(count):
        workload = KINDS[int(rng.integers(len(KINDS)))]
        alone = {a: speeds.steps_per_s[SpeedKey(workload, 1, a)] for a in ACCELERATORS}
        steps = float(rng.uniform(1e3, 1e6))
        jobs.append(InstanceJob(id=str(i), workload=workload, speeds=alone, steps_left=steps))
    return replace(snapshot_of(Instance(CLUSTER, tuple(jobs))), speeds=speeds)


def _successive(seed: int) -> list[Snapshot]:
    """Return snapshots between which a job or two come or go; a workload has one profile."""
    snap, rng = _snapshot(seed, 24), np.random.default_rng(seed)
    workload = list(snap.profiles.workload)
    profile = np.array([workload.index(name) for name in workload])
    present = list(range(12))
    snapshots = []
    for new in range(12, 24):
        part = snap.subset(np.array(present), snap.devices)
        snapshots.append(replace(part, profile=profile[part.job], profiles=snap.profiles))
        if new % 3:
            present.remove(int(rng.choice(present)))
        present.append(new)
    return snapshots


def _time_of_units(allocation: Allocation) -> dict[tuple[int, ...], list[float]]:
    rows = zip(allocation.members.tolist(), allocation.share.tolist(), strict=True)
    return {tuple(unit): share for unit, share in rows if max(share) > 1e-9}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "policy", [Fairlead(packed=True), Makespan(packed=True), FinishTime(packed=True)]
)
def test_pairs_near_the_last_prices_give_the_shares_and_the_proof_of_all_pairs(
    policy: Fairlead | Makespan | FinishTime, seed: int
) -> None:
    warm = WarmStart()
    for snap in _successive(seed):
        found, cold = policy.allocate_warm(snap, warm), policy.allocate(snap)
        shares, expected = _time_of_units(found), _time_of_units(cold)
        assert shares.keys() == expected.keys()
        for unit, share in shares.items():
            np.testing.assert_allclose(share, expected[unit], atol=1e-8)
        assert found.objective == pytest.approx(cold.objective, rel=1e-9)
        assert found.prove is not None
        assert abs(found.prove().gap) <= 1e-8


def test_only_pairs_that_can_matter_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[tuple[int, int]] = []
    best_of = WarmSum.best_of

    def counted(self: WarmSum, pool: near_pairs.NearPairs, keys: Keys) -> BestTimes | None:
        best = best_of(self, pool, keys)
        if best is not None:
            listed.append((len(best.time), len(pool.all()[1])))
        return best

    monkeypatch.setattr(WarmSum, "best_of", counted)
    policy, warm = Fairlead(packed=True), WarmStart()
    for snap in _successive(0):
        policy.allocate_warm(snap, warm)
    assert len(listed) == 11
    assert sum(few for few, _ in listed) < sum(every for _, every in listed)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_compiled_code_lists_the_same_pairs(level: float, monkeypatch: pytest.MonkeyPatch) -> None:
    snap, rng = _snapshot(1, 20), np.random.default_rng(1)
    value = rng.random((20, 2))

    def pool() -> near_pairs.NearPairs:
        made = near_pairs.near_pairs(snap, PACKED, value, np.ones(20), lambda _, p: p.gain_first)
        assert made is not None
        return made

    prices = Prices(rng.random(2), rng.random(20), level * rng.random(20))
    for limit in (-1.0, 0.0, 0.5, 9.0):
        fast, slow = pool(), pool()
        is_new = fast.add_near(prices, limit)
        with monkeypatch.context() as patch:
            patch.setattr(near_pairs, "compiled", None)
            assert slow.add_near(prices, limit) == is_new
        np.testing.assert_array_equal(fast.table.first, slow.table.first)
        np.testing.assert_array_equal(fast.table.second, slow.table.second)
        np.testing.assert_array_equal(fast.table.column, slow.table.column)
        assert not fast.add_near(prices, limit)
    # Every pair that pays lacks less than 9.
    np.testing.assert_array_equal(fast.listed()[1], fast.all()[1])


def test_pairs_that_are_faster_than_jobs_alone_are_listed() -> None:
    snap = _snapshot(2, 12)
    assert snap.speeds is not None
    speeds = {
        key: speed * (4.0 if key.partner else 1.0)
        for key, speed in snap.speeds.steps_per_s.items()
    }
    faster = replace(snap, speeds=SpeedTable(speeds))
    for each in (snap, faster):
        pool = near_pairs.near_pairs(
            each, PACKED, np.ones((12, 2)), np.ones(12), lambda _, problem: problem.gain_first
        )
        assert pool is not None
        pool.add_fastest()
        listed, every = pool.listed()[0], pool.all()[0]
        np.testing.assert_array_equal(listed.cap, every.cap)
        assert (listed.cap > snap.speed.max(axis=1)).any() == (each is faster)
        assert len(listed.resource) < len(every.resource)


def test_threads_may_prove_a_solution_at_the_same_time() -> None:
    allocation = Makespan(packed=True).allocate(_snapshot(4, 24))
    assert allocation.prove is not None
    alone = allocation.prove()
    with ThreadPoolExecutor(8) as threads:
        proofs = [
            proof.result() for proof in [threads.submit(allocation.prove) for _ in range(64)]
        ]
    assert {proof.bound for proof in proofs} == {alone.bound}
    assert {proof.gap for proof in proofs} == {alone.gap}


@pytest.mark.parametrize("policy", [Makespan(packed=True), FinishTime(packed=True)])
def test_alike_jobs_are_served_alike(policy: Makespan | FinishTime) -> None:
    snap, warm = _snapshot(3, 9), WarmStart()
    alike = np.array([0, 1, 2, 3, 3, 3, 3, 3, 3])
    snap = replace(snap, profile=snap.profile[alike], total_steps=snap.total_steps[alike])
    for _ in range(2):
        speed = policy.allocate_warm(snap, warm).speed
        assert speed is not None
        np.testing.assert_allclose(speed[3:], speed[3], rtol=1e-9)


def test_prices_of_fewer_accelerators_are_not_used() -> None:
    """A node of a new accelerator has come."""
    policy, warm = Fairlead(packed=True), WarmStart()
    policy.allocate_warm(_snapshot(0, 12), warm)
    snap = _snapshot(0, 12)
    cluster = Cluster.of({**dict(zip(ACCELERATORS, (4, 4), strict=True)), "t4": 2})
    wider = snapshot_of(
        Instance(
            cluster,
            tuple(
                InstanceJob(
                    id=str(i),
                    workload=snap.profiles.workload[i],
                    speeds={
                        **dict(zip(ACCELERATORS, snap.speed[i].tolist(), strict=True)),
                        "t4": 1.0,
                    },
                    steps_left=float(snap.total_steps[i]),
                )
                for i in range(12)
            ),
        )
    )
    wider = replace(wider, speeds=snap.speeds)
    found, cold = policy.allocate_warm(wider, warm), policy.allocate(wider)
    assert found.objective == pytest.approx(cold.objective, rel=1e-9)
    assert _time_of_units(found).keys() == _time_of_units(cold).keys()


def test_memory_and_explicit_speeds_leave_pairs_to_the_whole_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snap = _snapshot(1, 5)
    arguments = (np.ones((5, 2)), np.ones(5), lambda _, problem: problem.gain_first)
    assert near_pairs.near_pairs(snap, PACKED, *arguments) is not None
    profiles = replace(snap.profiles, memory_gib=np.ones(len(snap.profiles.gang)))
    declared = replace(snap, profiles=profiles)
    gangs = replace(snap, profiles=replace(snap.profiles, gang=np.full(5, 2)))
    # No table is built to find that out.
    monkeypatch.setattr(near_pairs, "TableBuilder", None)
    assert near_pairs.near_pairs(declared, PACKED, *arguments) is None
    assert near_pairs.near_pairs(gangs, PACKED, *arguments) is None
    assert near_pairs.near_pairs(replace(snap, speeds=None), PACKED, *arguments) is None
    assert near_pairs.near_pairs(snap, UnitRules(), *arguments) is None


@pytest.mark.parametrize("packed", [False, True])
def test_a_kept_table_is_the_table_of_the_snapshot(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def build(snap: Snapshot, distinct: FloatArray, rules: UnitRules) -> UnitTable:
        built.append(snap)
        return unit_table(snap, distinct, rules)

    monkeypatch.setattr(kept_table, "unit_table", build)
    kept, rules = KeptTable(), UnitRules(packed=packed)
    snapshots = [each for seed in range(2) for each in _successive(seed)]
    for snap in snapshots:
        distinct = np.arange(len(snap.profiles.gang), dtype=float) // 4
        table = kept.table(snap, distinct, rules)
        expected = unit_table(snap, distinct[snap.profile], rules)
        for field in fields(table):
            found, value = getattr(table, field.name), getattr(expected, field.name)
            if field.name == "classes":
                for name in ("index_of_member", "representative", "count"):
                    np.testing.assert_array_equal(getattr(found, name), getattr(value, name))
            elif field.name in {"columns", "extra"}:
                assert found == value
            else:
                np.testing.assert_array_equal(found, value)
    assert 2 <= len(built) < len(snapshots)
