"""Policies that fill levels along a path, with all jobs distinct, beside one plain LP in cvxpy."""

import time
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.hierarchical import Hierarchical

JOBS = 2048
ENTITIES = 10
LOADS = {"heavy": 3.0, "balanced": 1.0, "light": 0.6}
"""requested devices per available device"""
_KINDS = {"v100": 4.0, "p100": 2.5, "k80": 1.0}


def snapshot(load: float, seed: int = 0) -> Snapshot:
    """Return distinct jobs of ten entities on a cluster sized for the load."""
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 1, 1, 1, 1, 2, 4], JOBS)
    speed = rng.uniform(0.3, 1.0, (JOBS, len(_KINDS))) * np.array(list(_KINDS.values()))
    left_s = 60.0 * 10 ** rng.uniform(1.5, 4.0, JOBS)
    elapsed_s = left_s * rng.uniform(0.0, 2.0, JOBS)
    jobs = tuple(
        InstanceJob(
            id=str(i),
            speeds=dict(zip(_KINDS, speed[i].tolist(), strict=True)),
            tenant=f"entity-{i % ENTITIES}",
            gang=int(gang[i]),
            steps_left=float(left_s[i] * speed[i, 0]),
            elapsed_s=float(elapsed_s[i]),
            isolated_elapsed_s=float(elapsed_s[i] * rng.uniform(0.5, 2.0)),
        )
        for i in range(JOBS)
    )
    tenants = tuple(Tenant(f"entity-{e}", 1.0 + e % 3) for e in range(ENTITIES))
    devices = round(float(gang.sum()) / load / len(_KINDS))
    return snapshot_of(Instance(Cluster.of(dict.fromkeys(_KINDS, devices)), jobs, tenants))


def plain_lp(snap: Snapshot) -> float:
    """Return the maximum least level by cvxpy: one plain LP of the same size."""
    mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
    gain = snap.speed * (snap.gang / mean)[:, None]
    share = cp.Variable(gain.shape, nonneg=True)
    level = cp.sum(cp.multiply(gain, share), axis=1)
    rows = [cp.sum(share, axis=1) <= 1, snap.gang.astype(float) @ share <= snap.capacity]
    return float(cp.Problem(cp.Maximize(cp.min(level)), rows).solve())


def best_s(solve: Callable[[Snapshot], Any], snap: Snapshot, times: int = 5) -> float:
    """Return the least process time of several runs."""
    least = np.inf
    for _ in range(times):
        start = time.process_time()
        solve(snap)
        least = min(least, time.process_time() - start)
    return least


def figures() -> dict[str, float]:
    """Return name → process seconds of each policy and load, and of the plain LP."""
    times_s: dict[str, float] = {}
    for name, load in LOADS.items():
        snap = snapshot(load)
        fair, queues = Hierarchical(), Hierarchical(inner="fifo")
        times_s[f"hierarchical-fairness-{name}"] = best_s(fair.allocate, snap)
        times_s[f"hierarchical-fifo-{name}"] = best_s(queues.allocate, snap)
        times_s[f"finish-time-{name}"] = best_s(FinishTime().allocate, snap)
        times_s[f"cvxpy-plain-{name}"] = best_s(plain_lp, snap, 2)
    return times_s


if __name__ == "__main__":
    for name, seconds in figures().items():
        print(f"{name:32} {1e3 * seconds:8.0f} ms")
