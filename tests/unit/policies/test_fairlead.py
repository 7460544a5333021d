"""Shares of the policy ``fairlead``: short jobs first, promises, weights, staying, proofs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairlead.core.event_log import decode_value, encode_value
from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms.shares import Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.fairlead import Fairlead
from fairlead.policies.fairlead.lengths import estimate_left_s
from fairlead.policies.fairlead.promise import IN_PROGRAM, urgency
from fairlead.policies.rules.priority import PriorityPolicy

HOUR_S = 3600.0


def _snap(cluster: dict[str, int], *jobs: InstanceJob) -> Snapshot:
    return snapshot_of(Instance(Cluster.of(cluster), jobs))


def _job(name: str, hours: float, **more: object) -> InstanceJob:
    fields: dict[str, object] = {"speeds": {"a": 1.0}, "steps_left": hours * HOUR_S, **more}
    return InstanceJob(id=name, **fields)  # type: ignore[arg-type]  # fields of any type


def test_the_shorter_job_runs_first() -> None:
    share = Fairlead().allocate(_snap({"a": 1}, _job("long", 9.0), _job("short", 2.0))).share
    assert share[:, 0].tolist() == [0.0, 1.0]


def test_jobs_go_where_they_are_relatively_fastest() -> None:
    flat = _job("flat", 5.0, speeds={"a": 1.0, "b": 0.9})
    steep = _job("steep", 5.0, speeds={"a": 1.0, "b": 0.2})
    share = Fairlead().allocate(_snap({"a": 1, "b": 1}, flat, steep)).share
    assert share.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_gangs_count_by_their_progress_per_device() -> None:
    gang, single = _job("gang", 5.0, gang=2), _job("single", 6.0)
    other = _job("other", 6.0)
    share = Fairlead().allocate(_snap({"a": 2}, gang, single, other)).share
    assert share[:, 0].tolist() == [0.0, 1.0, 1.0]


def test_weight_multiplies_the_value() -> None:
    heavy, light = _job("heavy", 9.0, weight=4.0), _job("light", 2.0)
    assert Fairlead().allocate(_snap({"a": 1}, heavy, light)).share[:, 0].tolist() == [1.0, 0.0]


def test_a_tenant_cannot_gather_its_weight_on_one_job() -> None:
    gathered = _job("gathered", 9.0, tenant="a", weight=1.98)
    rest, other = _job("rest", 9.5, tenant="a", weight=0.02), _job("other", 8.0, tenant="b")
    tenants = (Tenant("a"), Tenant("b"))
    snap = snapshot_of(Instance(Cluster.of({"a": 1}), (gathered, rest, other), tenants))
    assert Fairlead().allocate(snap).share[:, 0].tolist() == [0.0, 0.0, 1.0]


def test_a_job_near_its_promised_finish_time_comes_before_shorter_ones() -> None:
    # Alone it would still need 9 h; on half of the cluster it would have ended after 18 h.
    waited = _job("waited", 9.0, elapsed_s=8.9 * HOUR_S)
    fresh = _job("fresh", 2.5)
    assert Fairlead().allocate(_snap({"a": 1}, waited, fresh)).share[:, 0].tolist() == [1.0, 0.0]
    early = replace(waited, elapsed_s=HOUR_S)
    assert Fairlead().allocate(_snap({"a": 1}, early, fresh)).share[:, 0].tolist() == [0.0, 1.0]


def test_urgency_never_stops_growing_with_the_time_waited() -> None:
    values = []
    for elapsed_h in (0.0, 5.0, 12.0, 18.0, 40.0, 400.0):
        job = _job("waits", 9.0, elapsed_s=elapsed_h * HOUR_S)
        snap = _snap({"a": 1}, job, _job("other", 9.0))
        values.append(float(urgency(snap, snap.speed, snap.steps_left, IN_PROGRAM)[0]))
    assert values == sorted(values)
    assert values[-1] > 5 * values[-2] > 0


def test_a_running_job_keeps_its_device_unless_another_gains_clearly_more() -> None:
    snap = _snap({"a": 1}, _job("runs", 5.0), _job("waits", 4.8))
    assert Fairlead().allocate(snap).share[:, 0].tolist() == [0.0, 1.0]
    running = replace(snap, on=np.array([0, -1]))
    assert Fairlead().allocate(running).share[:, 0].tolist() == [1.0, 0.0]
    shorter = replace(running, total_steps=np.array([5.0, 1.0]) * HOUR_S)
    assert Fairlead().allocate(shorter).share[:, 0].tolist() == [0.0, 1.0]


def test_attained_service_decides_where_lengths_are_unknown() -> None:
    snap = _snap({"a": 1}, _job("old", 5.0), _job("new", 50.0))
    worked = replace(snap, steps=np.array([4.0, 0.1]) * HOUR_S)
    assert Fairlead().allocate(worked).share[:, 0].tolist() == [1.0, 0.0]
    assert Fairlead(attained=True).allocate(worked).share[:, 0].tolist() == [0.0, 1.0]


def test_a_job_beyond_its_declared_length_is_not_taken_for_almost_done() -> None:
    snap = _snap({"a": 1}, _job("overrun", 1.0))
    beyond = replace(snap, steps=np.array([20.0 * HOUR_S]))
    left_s = estimate_left_s(beyond, np.ones(1), attained=False)
    assert left_s[0] >= HOUR_S


@pytest.mark.parametrize("seed", range(8))
def test_objective_is_that_of_a_plain_program_and_proved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        InstanceJob(
            id=str(i),
            gang=int(rng.integers(1, 4)),
            speeds={name: float(rng.uniform(0.2, 5.0)) for name in "abc"},
            steps_left=float(rng.uniform(1e3, 1e6)),
            weight=float(rng.choice([1.0, 2.0])),
            elapsed_s=float(rng.uniform(0.0, 1e5)),
        )
        for i in range(12)
    ]
    snap = _snap({"a": 4, "b": 3, "c": 6}, *jobs)
    allocation = Fairlead().allocate(snap)
    left_s = snap.steps_left / snap.speed.max(axis=1)
    value = snap.weight * urgency(snap, snap.speed, left_s, IN_PROGRAM)
    value = value / np.sqrt(left_s) / snap.speed.max(axis=1)
    assert allocation.objective == pytest.approx(_greatest_total(snap, value), rel=1e-7)
    assert allocation.prove is not None
    assert allocation.prove().gap <= 1e-7


def _greatest_total(snap: Snapshot, value: FloatArray) -> float:
    n, accelerators = snap.speed.shape
    time = np.kron(np.eye(n), np.ones(accelerators))
    held = np.kron(snap.gang.astype(float), np.eye(accelerators))
    solution = linprog(
        -(snap.speed * value[:, None]).ravel(),
        A_ub=np.vstack([time, held]),
        b_ub=np.concatenate([np.ones(n), snap.capacity]),
        method="highs",
    )
    return float(-solution.fun)


def test_a_device_that_falls_idle_goes_to_the_waiting_job_of_most_value() -> None:
    rounds = Shares(PriorityPolicy(Fairlead()))
    long, short, shortest = _job("long", 9.0), _job("short", 2.0), _job("shortest", 0.05)
    _, memory = rounds.plan(_snap({"a": 1}, long, short, shortest), rounds.initial())
    waiting, idle = _snap({"a": 1}, long, short), np.array([0])
    assert rounds.refill(waiting, memory, idle).job.tolist() == [1]
    assert decode_value(encode_value(memory), Account).by_value
    # A log of an earlier version is replayed as it was written: by the time owed, then by arrival.
    earlier = replace(memory, by_value=False)
    assert "by_value" not in encode_value(earlier)
    assert rounds.refill(waiting, earlier, idle).job.tolist() == [0]
