"""Finish-time fairness and hierarchies over units, against those over jobs and a pair program."""

from dataclasses import replace

import numpy as np
import pytest
from tests.properties.policies.pair_program import PairProgram, check_feasible, random_snapshot

from fairlead.model.errors import SolveError
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import effective_speed
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.hierarchical import Hierarchical
from fairlead.policies.isolated import Isolated


def _with_history(seed: int, snap: Snapshot) -> Snapshot:
    rng, n = np.random.default_rng(seed), len(snap.job)
    return replace(
        snap,
        arrival_at=-rng.choice([0.0, 10.0, 50.0, 200.0], n),
        isolated_elapsed_s=rng.choice([0.0, 5.0, 30.0, 100.0], n),
        total_steps=rng.uniform(50, 500, n),
    )


def _with_tenants(seed: int, snap: Snapshot) -> Snapshot:
    rng = np.random.default_rng(seed)
    inner = [str(name) for name in rng.choice(["fairness", "fifo"], 2)]
    tenants = (
        Tenant("a"),
        Tenant("b", 2.0, inner=inner[0]),
        Tenant("c", 1.0, "b", inner=inner[1]),
        Tenant("d", 3.0, "b"),
    )
    profiles = replace(snap.profiles, tenant=rng.integers(0, 4, len(snap.job)))
    return replace(snap, tenants=tenants, profiles=profiles)


def test_units_of_one_job_have_the_levels_of_jobs() -> None:
    for seed in range(80):
        alone = replace(random_snapshot(seed, accelerators=3, most=9), speeds=None)
        for policy, units, snap in (
            (FinishTime(), FinishTime(placement=True), _with_history(seed, alone)),
            (Hierarchical(), Hierarchical(placement=True), _with_tenants(seed, alone)),
        ):
            one, two = policy.allocate(snap), units.allocate(snap)
            fastest = snap.speed.max(axis=1)
            np.testing.assert_allclose(
                effective_speed(snap, two) / fastest,
                effective_speed(snap, one) / fastest,
                atol=1e-6,
                err_msg=f"{seed} {policy}",
            )
            assert two.prove is not None
            assert abs(two.prove().gap) <= 1e-6


def test_packed_is_never_worse_along_a_path() -> None:
    better = 0
    for seed in range(150):
        snap = _with_history(seed, random_snapshot(seed, most=7))
        alone, packed = FinishTime().allocate(snap), FinishTime(packed=True).allocate(snap)
        assert packed.objective is not None
        assert alone.objective is not None
        assert packed.objective <= alone.objective * (1 + 1e-7), seed
        better += packed.objective < alone.objective * (1 - 1e-6)
        check_feasible(snap, packed)
        snap = _with_tenants(seed, snap)
        alone, packed = Hierarchical().allocate(snap), Hierarchical(packed=True).allocate(snap)
        assert packed.objective is not None
        assert alone.objective is not None
        assert packed.objective >= alone.objective * (1 - 1e-7), seed
        better += packed.objective > alone.objective * (1 + 1e-6)
        check_feasible(snap, packed)
    assert better > 25


def _fits(snap: Snapshot, finish_s: np.ndarray) -> bool:
    """Return whether in the pair program all jobs finish within this time of their arrival."""
    left_s = finish_s - snap.elapsed_s
    if (left_s <= 0).any():
        return False
    program = PairProgram.of(snap)
    gain = program.gain(np.ones(len(snap.job)))
    try:
        program.best(np.zeros(gain.shape[1]), snap.steps_left / left_s, gain)
    except SolveError:
        return False
    return True


def test_packed_finish_time_agrees_with_the_pair_program() -> None:
    for seed in range(50):
        snap = _with_history(seed, random_snapshot(seed))
        allocation = FinishTime(packed=True).allocate(snap)
        isolated = effective_speed(snap, Isolated().allocate(snap))
        fair_s = snap.isolated_elapsed_s + snap.steps_left / isolated
        low, high = 0.0, 1.0
        while not _fits(snap, high * fair_s):
            low, high = high, 2 * high
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if _fits(snap, middle * fair_s) else (middle, high)
        assert allocation.objective == pytest.approx(high, rel=1e-6), seed
        assert allocation.prove is not None
        assert abs(allocation.prove().gap) <= 1e-6
