"""The policy ``finish-time`` against the original Gavel's: allocations and a simulation."""

import json
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from tests.support.shared_data import SHARED, needs_shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import effective_speed
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.isolated import Isolated
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

pytestmark = [needs_shared, pytest.mark.reference]

TRACE, CLUSTER = "cont_single_300_lam1800_seed0.csv.gz", "v100=12,p100=12,k80=12"


def _instances() -> list[dict[str, Any]]:
    if SHARED is None:
        return []
    loaded: list[dict[str, Any]] = json.loads(
        (SHARED / "reference/gavel/allocations.json").read_text()
    )
    return loaded


def _snapshot(case: dict[str, Any], scale: float = 0.0) -> Snapshot:
    jobs = tuple(
        InstanceJob(
            id=job["id"],
            gang=job["gang"],
            steps_left=job["steps_left"],
            elapsed_s=job["elapsed_s"],
            isolated_elapsed_s=scale * job["elapsed_s"],
            speeds=job["throughputs"],
        )
        for job in case["jobs"]
    )
    return snapshot_of(Instance(Cluster.of(case["cluster"]), jobs))


def _ratios(snap: Snapshot, speed: Any) -> Any:
    """Return jobs → ρ by its definition."""
    isolated = (snap.speed * Isolated().allocate(snap).share).sum(axis=1)
    here = snap.elapsed_s + snap.steps_left / speed
    return here / (snap.isolated_elapsed_s + snap.steps_left / isolated)


@pytest.mark.parametrize("case", _instances(), ids=lambda case: f"instance-{case['instance']}")
class TestInstance:
    def test_the_greatest_ratio_is_at_most_gavels(self, case: dict[str, Any]) -> None:
        snap = _snapshot(case)
        allocation = FinishTime().allocate(snap)
        worst = _ratios(snap, effective_speed(snap, allocation)).max()
        assert worst <= case["gavel"]["finish_time_fairness_perf"]["ftf_rho"] * (1 + 1e-6)
        assert allocation.objective == pytest.approx(worst, rel=1e-9)

    @pytest.mark.parametrize("scale", [0.0, 0.7])
    def test_the_greatest_ratio_agrees_with_a_convex_program(
        self, case: dict[str, Any], scale: float
    ) -> None:
        snap = _snapshot(case, scale)
        allocation = FinishTime().allocate(snap)
        isolated = (snap.speed * Isolated().allocate(snap).share).sum(axis=1)
        alone = snap.isolated_elapsed_s + snap.steps_left / isolated
        share = cp.Variable(snap.speed.shape, nonneg=True)
        fastest = snap.speed.max(axis=1)
        level = cp.sum(cp.multiply(snap.speed / fastest[:, None], share), axis=1)
        time = snap.elapsed_s / alone + cp.multiply(
            snap.steps_left / fastest / alone, cp.inv_pos(level)
        )
        rows = [cp.sum(share, axis=1) <= 1, snap.gang.astype(float) @ share <= snap.capacity]
        exact = cp.Problem(cp.Minimize(cp.max(time)), rows).solve(solver=cp.CLARABEL)
        assert allocation.objective == pytest.approx(exact, rel=1e-5)
        assert allocation.prove is not None
        proof = allocation.prove()
        assert proof.bound == pytest.approx(allocation.objective, rel=1e-6)
        assert -1e-9 <= proof.gap <= 1e-6

    def test_no_job_can_do_better_unless_a_worse_one_loses(self, case: dict[str, Any]) -> None:
        """No ratio falls while all equal or worse ratios stay."""
        snap = _snapshot(case)
        speed = effective_speed(snap, FinishTime().allocate(snap))
        ratio = _ratios(snap, speed)
        for i in range(len(ratio)):
            share = cp.Variable(snap.speed.shape, nonneg=True)
            reached = cp.sum(cp.multiply(snap.speed, share), axis=1)
            keep = np.flatnonzero(ratio >= ratio[i] * (1 - 1e-7))
            rows = [cp.sum(share, axis=1) <= 1, snap.gang.astype(float) @ share <= snap.capacity]
            rows += [reached[int(k)] >= speed[k] * (1 - 1e-9) for k in keep if k != i]
            best = cp.Problem(cp.Maximize(reached[i]), rows).solve(solver=cp.CLARABEL)
            assert best <= speed[i] * (1 + 1e-5)


@pytest.mark.parametrize(
    ("policy", "gavels"),
    [
        ("finish-time", "finish_time_fairness_perf"),
        ("finish-time:agnostic", "finish_time_fairness"),
    ],
)
def test_continuous_trace_completes_as_fast_as_gavel(policy: str, gavels: str) -> None:
    assert SHARED is not None
    runs = json.loads((SHARED / "reference/gavel/simulations.json").read_text())
    gavel = next(run for run in runs if (run["policy"], run["trace"]) == (gavels, TRACE))
    jobs = read_trace(SHARED / "reference/gavel" / TRACE).jobs
    record, _ = simulate(
        Scenario(
            cluster=read_cluster(CLUSTER),
            speeds=read_speeds(SHARED / "data/gavel/simulation_throughputs.json.gz"),
            jobs=jobs,
            mechanism=create_mechanism(policy, None, 360.0),
        )
    )
    jct = record.finished_at - np.array([job.arrival_at for job in jobs])
    assert float(jct.mean()) <= 1.03 * gavel["avg_jct_s"]
