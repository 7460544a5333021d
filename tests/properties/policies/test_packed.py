"""Packed policies against a program with one variable for every pair of jobs."""

from dataclasses import replace

import numpy as np
import pytest
from tests.properties.policies.pair_program import (
    PairProgram,
    check_feasible,
    normal_scale,
    random_snapshot,
    speed_of_units,
)

from fairlead.mechanisms.shares import Shares
from fairlead.mechanisms.units import Units
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.makespan import Makespan
from fairlead.policies.max_min import MaxMin
from fairlead.policies.throughput import Throughput


@pytest.mark.parametrize("by_job", [False, True], ids=["by workload", "by job"])
def test_packed_max_min_agrees_with_the_pair_program(by_job: bool) -> None:
    packed, several = 0, 0
    for seed in range(120):
        snap = random_snapshot(seed, by_job=by_job)
        allocation = MaxMin(packed=True).allocate(snap)
        scale = normal_scale(snap)
        exact = PairProgram.of(snap).lexicographic(scale)
        assert allocation.speed is not None
        level = np.sort(allocation.speed * scale)
        assert allocation.objective == pytest.approx(exact[0], rel=1e-6), seed
        np.testing.assert_allclose(level, exact, rtol=1e-5, err_msg=str(seed))
        check_feasible(snap, allocation)
        np.testing.assert_allclose(speed_of_units(snap, allocation), allocation.speed, rtol=1e-9)
        assert allocation.prove is not None
        proof = allocation.prove()
        assert -1e-9 <= proof.gap <= 1e-6
        assert exact[0] <= proof.bound * (1 + 1e-6)
        packed += allocation.members.shape[1] > 1
        several += len(np.unique(level.round(6))) > 1
    # The instances are such that packing pays and levels differ.
    assert packed > 20
    assert several > 20


def test_packed_makespan_agrees_with_the_pair_program() -> None:
    for seed in range(60):
        snap = random_snapshot(seed)
        allocation = Makespan(packed=True).allocate(snap)
        program, scale = PairProgram.of(snap), 1.0 / snap.steps_left
        exact = program.lexicographic(scale)
        assert allocation.objective == pytest.approx(1.0 / exact[0], rel=1e-6)
        assert allocation.speed is not None
        level = allocation.speed * scale
        gain, floor = program.gain(scale), np.full(len(scale), exact[0])
        assert (level >= floor * (1 - 1e-6)).all(), seed
        worth = np.sqrt(snap.steps_left / snap.speed.max(axis=1))
        best = program.best(worth @ gain, floor * (1 - 1e-7), gain)
        assert worth @ level == pytest.approx(best, rel=1e-4), seed
        check_feasible(snap, allocation)


def _overdue_snapshot(seed: int) -> Snapshot:
    """Jobs whose lengths differ by many orders of magnitude, some of which are late already."""
    rng = np.random.default_rng(seed)
    names = ("fast", "slow", "odd")[: int(rng.integers(1, 4))]
    jobs = []
    for i in range(int(rng.integers(2, 14))):
        elapsed = float(rng.choice([0.0, 10.0, 1e3, 1e5]))
        speeds = {name: float(rng.uniform(1, 10)) for name in names}
        jobs.append(
            InstanceJob(
                id=f"j{i}",
                workload=f"w{i}",
                gang=int(rng.choice([1, 1, 2])),
                speeds=speeds,
                steps_left=float(rng.lognormal(5, 3)),
                elapsed_s=elapsed,
                isolated_elapsed_s=elapsed * float(rng.choice([0.0, 0.7, 1.0])),
            )
        )
    cluster = Cluster.of({name: int(rng.integers(2, 7)) for name in names})
    return snapshot_of(Instance(cluster, tuple(jobs)))


@pytest.mark.parametrize("options", [{"packed": True}, {"placement": True}])
def test_finish_time_solves_paths_on_which_a_job_rises_within_the_last_bits(
    options: dict[str, bool],
) -> None:
    """With seeds 79 and 154 a job needs no device at one time, and a whole one a moment later.

    There the last vertex proves less than the others do.
    """
    gaps = []
    for seed in range(70, 160):
        snap = _overdue_snapshot(seed)
        allocation = FinishTime(**options).allocate(snap)
        check_feasible(snap, allocation)
        assert allocation.objective == pytest.approx(FinishTime().allocate(snap).objective, 1e-5)
        assert allocation.prove is not None
        gaps.append(allocation.prove().gap)
    assert min(gaps) >= -1e-7
    assert max(gaps) <= 2e-3
    assert sum(gap > 1e-5 for gap in gaps) <= 2


def test_makespan_packs_gangs_only_where_that_lowers_it() -> None:
    """Else rounds are those of jobs alone, so that packing cannot end later."""
    packs = alone = 0
    for seed in range(25):
        snap = random_snapshot(seed, most=9)
        packed, unpacked = (Makespan(packed=p).allocate(snap).objective for p in (True, False))
        assert packed is not None
        assert unpacked is not None
        units, shares = Units(Makespan(packed=True)), Shares(Makespan())
        plan, memory = units.plan(snap, units.initial())
        if snap.profiles.single or packed < unpacked * 0.98:
            packs += len(memory.packed) > 0 and not snap.profiles.single
            continue
        wanted, _ = shares.plan(snap, shares.initial())
        assert not len(memory.packed)
        assert started_on(snap, plan) == started_on(snap, wanted), seed
        alone += 1
    assert packs > 1
    assert alone > 5
    empty = snap.subset(np.zeros(0, np.int64), snap.devices)
    assert not started_on(empty, units.plan(empty, memory)[0])


def started_on(snap: Snapshot, plan: Plan) -> dict[int, set[int]]:
    """Return jobs that start → accelerators of their devices."""
    return {p.job: set(snap.cluster.accelerator_of[list(p.devices)].tolist()) for p in plan.start}


def test_packed_throughput_agrees_with_the_pair_program() -> None:
    for seed in range(60):
        snap = random_snapshot(seed, accelerators=3)
        allocation = Throughput(packed=True).allocate(snap)
        program = PairProgram.of(snap)
        total = program.gain(np.ones(len(snap.job)))
        exact = program.best(total.sum(axis=0), np.zeros(len(total)), total)
        assert allocation.objective == pytest.approx(exact, rel=1e-9), seed
        assert allocation.speed is not None
        assert allocation.speed.sum() == pytest.approx(exact, rel=1e-9)
        check_feasible(snap, allocation)


def test_packed_is_never_worse_than_unpacked() -> None:
    better = 0
    for seed in range(500):
        snap = random_snapshot(seed, most=8)
        packed, alone = MaxMin(packed=True).allocate(snap), MaxMin().allocate(snap)
        assert packed.objective is not None
        assert alone.objective is not None
        assert packed.objective >= alone.objective * (1 - 1e-8), seed
        better += packed.objective > alone.objective * (1 + 1e-6)
        check_feasible(snap, packed)
    assert better > 100


def test_scaling_all_speeds_of_a_workload_changes_no_share() -> None:
    for seed in range(100):
        snap = random_snapshot(seed)
        assert snap.speeds is not None
        factor = {f"w{i}": 10.0 ** (i - 1) for i in range(3)}
        table = SpeedTable({k: v * factor[k.workload] for k, v in snap.speeds.steps_per_s.items()})
        scaled = np.array([factor[w] for w in snap.profiles.workload])
        profiles = replace(snap.profiles, speed=snap.profiles.speed * scaled[:, None])
        other = replace(snap, speeds=table, profiles=profiles)
        one, two = (MaxMin(packed=True).allocate(s) for s in (snap, other))
        assert one.speed is not None
        assert two.speed is not None
        np.testing.assert_allclose(two.speed, one.speed * scaled, rtol=1e-7, err_msg=str(seed))


def test_the_order_of_jobs_changes_no_speed() -> None:
    for seed in range(100):
        snap = random_snapshot(seed, most=8)
        order = np.random.default_rng(seed).permutation(len(snap.job))
        shuffled = replace(
            snap,
            **{
                name: getattr(snap, name)[order]
                for name in ("job", "profile", "arrival_at", "total_steps", "steps", "deadline_at",
                             "priority", "received_s", "on", "lease")
            },
        )  # fmt: skip
        for policy in (MaxMin(packed=True), Throughput(packed=True)):
            one, two = policy.allocate(snap), policy.allocate(shuffled)
            assert one.speed is not None
            assert two.speed is not None
            np.testing.assert_allclose(two.speed, one.speed[order], rtol=1e-7, atol=1e-9)


def test_placement_changes_nothing_if_no_node_is_too_small() -> None:
    for seed in range(50):
        snap = random_snapshot(seed)
        plain = MaxMin(packed=True).allocate(snap)
        placed = MaxMin(packed=True, placement=True).allocate(snap)
        assert placed.objective is not None
        assert plain.objective is not None
        assert placed.objective >= plain.objective * (1 - 1e-9)
        check_feasible(snap, placed)
