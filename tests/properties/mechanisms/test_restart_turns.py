"""Turns by measured costs of restarts agree with those of a known cost."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.mechanisms.fixed_shares import ROUND_S, Fixed, snapshot

from fairlead.mechanisms.shares import Shares
from fairlead.model.cluster import Cluster

LONG_S = 1e6


@pytest.mark.parametrize("seed", range(20))
def test_equal_measured_costs_of_old_jobs_plan_like_the_known_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster, cost_s = Cluster.of({"a": 3, "b": 2}), float(rng.choice([0.0, 1.0, 10.0, 60.0]))
    share = rng.random((8, 2))
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    share /= share.sum(axis=0) / cluster.counts
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    policy = Fixed({(i,): row for i, row in enumerate(share.tolist())})
    known = Shares(policy, ROUND_S, restart_s=cost_s)
    measured = Shares(policy, ROUND_S, restart_s="auto")
    memories = [known.initial(), measured.initial()]
    received_s = np.full((8, 2), LONG_S)
    for number in range(30):
        starts_at = number * ROUND_S
        snap = snapshot(cluster, [1] * 8, starts_at=starts_at, received_s=received_s.tolist())
        snap = replace(snap, restart_s=np.full(8, cost_s))
        plan, memories[0] = known.plan(snap, memories[0])
        other, memories[1] = measured.plan(snap, memories[1])
        assert list(plan.start) == list(other.start)
        assert len(plan.start) == 5
        for unit in plan.start:
            received_s[unit.job, cluster.accelerator_of[unit.devices[0]]] += ROUND_S
