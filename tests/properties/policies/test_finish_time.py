"""Properties of the policy ``finish-time`` on random instances."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.isolated import Isolated
from fairlead.solve.linear import Columns, LinearProgram, solve_lp

INF = float("inf")


def _snapshot(rng: np.random.Generator, width: int | None = None) -> Snapshot:
    accelerators = ["v100", "p100", "k80"][: width or int(rng.integers(1, 4))]
    jobs = []
    for i in range(int(rng.integers(1, 9))):
        speed = rng.uniform(0.2, 4.0, len(accelerators))
        if len(accelerators) > 1 and rng.random() < 0.15:
            speed[rng.integers(len(accelerators))] = 0.0
        left_s = 10 ** rng.uniform(1, 4)
        elapsed_s = float(rng.choice([0.0, 1.0]) * left_s * rng.uniform(0, 3))
        jobs.append(
            InstanceJob(
                id=str(i),
                speeds=dict(zip(accelerators, speed, strict=True)),
                gang=int(rng.choice([1, 1, 2])),
                steps_left=float(left_s * speed.max()),
                elapsed_s=elapsed_s,
                isolated_elapsed_s=float(elapsed_s * rng.uniform(0, 2)),
            )
        )
    counts = rng.integers(2, 6, len(accelerators)).tolist()
    return snapshot_of(
        Instance(Cluster.of(dict(zip(accelerators, counts, strict=True))), tuple(jobs))
    )


def _isolated_s(snap: Snapshot) -> Any:
    speed = (snap.speed * Isolated().allocate(snap).share).sum(axis=1)
    return snap.isolated_elapsed_s + snap.steps_left / speed


def _ratios(snap: Snapshot, speed: Any) -> Any:
    """Return jobs → ρ by its definition."""
    return (snap.elapsed_s + snap.steps_left / speed) / _isolated_s(snap)


def _fastest(snap: Snapshot, floor: Any, job: int) -> float:
    """Return a job's greatest speed while the others keep their floors, by one program."""
    jobs, width = snap.speed.shape
    matrix = np.zeros((2 * jobs + width, jobs * width))
    lower, upper = np.full(len(matrix), -INF), np.full(len(matrix), INF)
    for i in range(jobs):
        cells = slice(i * width, (i + 1) * width)
        matrix[i, cells], matrix[jobs + i, cells] = snap.speed[i], 1.0
        lower[i], upper[jobs + i] = 0.0 if i == job else floor[i], 1.0
        for j in range(width):
            matrix[2 * jobs + j, i * width + j] = snap.gang[i]
    upper[2 * jobs :] = snap.capacity
    cost = np.zeros(jobs * width)
    cost[job * width : (job + 1) * width] = -snap.speed[job]
    free = np.full(len(cost), INF)
    program = LinearProgram(cost, Columns.dense(matrix), lower, upper, np.zeros(len(cost)), free)
    return -solve_lp(program).objective


def test_no_job_can_finish_earlier_unless_an_equally_bad_one_loses() -> None:
    """The lexicographic optimum, job by job: equally bad or worse jobs keep their speeds."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        snap = _snapshot(rng)
        speed = (snap.speed * FinishTime().allocate(snap).share).sum(axis=1)
        ratio = _ratios(snap, speed)
        for i in range(len(ratio)):
            floor = np.where(ratio >= ratio[i] * (1 - 1e-7), speed * (1 - 1e-10), 0.0)
            assert _fastest(snap, floor, i) <= speed[i] * (1 + 1e-6)


def test_shares_are_feasible_and_the_prices_prove_the_greatest_ratio() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        snap = _snapshot(rng)
        allocation = FinishTime().allocate(snap)
        share = allocation.share
        assert (share >= 0).all()
        assert (share.sum(axis=1) <= 1 + 1e-9).all()
        assert ((share * snap.gang[:, None]).sum(axis=0) <= snap.capacity * (1 + 1e-9)).all()
        worst = _ratios(snap, (snap.speed * share).sum(axis=1)).max()
        assert allocation.objective == pytest.approx(worst, rel=1e-9)
        assert allocation.prove is not None
        proof = allocation.prove()
        assert proof.bound <= worst * (1 + 1e-9)
        assert proof.bound >= worst * (1 - 1e-6)


def test_no_job_with_a_fair_past_does_worse_than_on_an_equal_split() -> None:
    """Sharing incentive: if every job has had its equal split so far, no ρ exceeds 1."""
    rng = np.random.default_rng(3)
    for _ in range(500):
        snap = _snapshot(rng)
        fair = replace(snap, isolated_elapsed_s=snap.elapsed_s.copy())
        objective = FinishTime().allocate(fair).objective
        assert objective is not None
        assert objective <= 1 + 1e-7


def test_scaling_all_speeds_of_a_job_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        snap = _snapshot(rng)
        factor = rng.choice([0.01, 0.5, 1.0, 300.0], len(snap.job))
        profiles = replace(snap.profiles, speed=snap.profiles.speed * factor[:, None])
        scaled = replace(snap, profiles=profiles, total_steps=snap.total_steps * factor)
        here, there = FinishTime().allocate(snap), FinishTime().allocate(scaled)
        np.testing.assert_allclose(
            _ratios(snap, (snap.speed * here.share).sum(axis=1)),
            _ratios(scaled, (scaled.speed * there.share).sum(axis=1)),
            rtol=1e-6,
        )


def test_agnostic_equals_aware_on_one_accelerator() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        snap = _snapshot(rng, width=1)
        aware, blind = FinishTime().allocate(snap), FinishTime(agnostic=True).allocate(snap)
        np.testing.assert_allclose(aware.share, blind.share, atol=1e-7)


def test_a_job_that_was_held_back_gets_more() -> None:
    def job(name: str, isolated_elapsed_s: float) -> InstanceJob:
        return InstanceJob(
            id=name,
            speeds={"gpu": 1.0},
            steps_left=100.0,
            elapsed_s=100.0,
            isolated_elapsed_s=isolated_elapsed_s,
        )

    # Alone each needs 200 s for the rest; one has made the steps of 100 s of its split, one none.
    snap = snapshot_of(Instance(Cluster.of({"gpu": 1}), (job("ahead", 100.0), job("behind", 0.0))))
    allocation = FinishTime().allocate(snap)
    share = allocation.share[:, 0]
    assert share.sum() == pytest.approx(1.0, abs=1e-9)
    ratio = _ratios(snap, share)
    assert ratio.tolist() == pytest.approx([allocation.objective] * 2, rel=1e-7)
    assert share[1] > 1.5 * share[0]
