"""OEF's placer against the paper (Mo, Xu, Lau, Middleware 2024): §4.3, §4.4, §6.2, §6.3.

The paper's own workloads are not printed: fixtures are stated where they are used.
"""

from typing import Any

import numpy as np
import pytest
from tests.properties.mechanisms.test_rounding import DebtRecorder, watched
from tests.support.tenant_instances import (
    alike_table,
    random_cluster,
    random_table,
    tenants,
)

from fairlead.mechanisms.rounding.mechanism import Rounding
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.base import Policy
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.tenant_max_min import TenantMaxMin
from fairlead.policies.trading import Trading
from fairlead.sim.scenario import Scenario

KINDS = ("rtx3070", "rtx3080", "rtx3090")
CLUSTER = Cluster.of(dict.fromkeys(KINDS, 8), per_node=4)
"""§6.1.1: eight of each, four to a host"""


def speeds(table: Any, accelerators: tuple[str, ...] = KINDS) -> SpeedTable:
    return SpeedTable(
        {
            SpeedKey(f"w{i}", 1, accelerator): float(speed)
            for i, row in enumerate(table)
            for accelerator, speed in zip(accelerators, row, strict=True)
        }
    )


def endless(tenant: int, number: int, gang: int = 1, steps: float = 1e9) -> Job:
    return Job(
        id=f"{tenant}-{number}",
        workload=f"w{tenant}",
        tenant=f"u{tenant}",
        gang=gang,
        total_steps=steps,
    )


# -- §6.3.3: workers hit by stragglers ----------------------------------------------------------


def twenty_tenants(seed: int, policy: Policy, spans: str) -> DebtRecorder:
    """20 tenants with speedups of 1.39 to 2.15 and six jobs of two or four workers each."""
    rng = np.random.default_rng(seed)
    fast = rng.uniform(1.39, 2.15, 20)
    table = np.column_stack([np.ones(20), 1 + (fast - 1) * rng.uniform(0.3, 0.7, 20), fast])
    jobs = [endless(i, n, int(rng.choice([2, 4]))) for i in range(20) for n in range(6)]
    return watched(
        Scenario(
            cluster=CLUSTER,
            speeds=speeds(table),
            jobs=jobs,
            mechanism=Rounding(policy, spans=spans),
        ),
        40,
    )


def hit(policy: Policy, spans: str) -> float:
    """Return the part of all workers that wait for slower ones."""
    runs = [twenty_tenants(seed, policy, spans).memory for seed in range(4)]
    return sum(m.hit_workers for m in runs) / sum(m.workers for m in runs)


def test_fewer_workers_wait_for_stragglers_under_oef_than_under_gavel_and_trading() -> None:
    """§6.3.3: 26 % and 14 % fewer, with gangs that use any devices of their tenant.

    Gavel as the paper reads it: a tenant holds at most one device per unit of weight (§2.4).
    """
    oef = hit(Oef(), "own")
    assert 0 < oef < 0.74 * hit(TenantMaxMin(capped=True), "own")
    assert oef < 0.86 * hit(Trading(), "own")


@pytest.mark.parametrize("policy", [Oef(), OefCooperative(), TenantMaxMin(), Trading()])
def test_no_worker_waits_where_whole_gangs_are_rounded(policy: Policy) -> None:
    """Default of Fairlead: in each round a gang runs on one accelerator."""
    assert hit(policy, "idle") == 0


def test_placement_loses_hardly_any_estimated_throughput() -> None:
    """§6.1.4: 'estimated' by the shares and 'actual' as placed, summed over tenants."""
    for policy in (Oef(), OefCooperative()):
        estimated, placed = twenty_tenants(0, policy, "idle").throughputs
        assert placed.sum() == pytest.approx(estimated.sum(), rel=0.01)
        np.testing.assert_allclose(placed, estimated, rtol=0.1)


# -- §6.2.1: strategy-proofness -----------------------------------------------------------------


def had(truth: Any, believed: Any, cluster: dict[str, int], liar: int, rounds: int) -> float:
    """Return the misreporting tenant's true normalised throughput × rounds."""
    accelerators = tuple(cluster)
    count = sum(cluster.values()) + 1
    jobs = [endless(i, n) for i in range(len(truth)) for n in range(count)]
    recorder = watched(
        Scenario(
            cluster=Cluster.of(cluster),
            speeds=speeds(truth, accelerators),
            believed=speeds(believed, accelerators),
            jobs=jobs,
            mechanism=Rounding(Oef()),
        ),
        rounds,
    )
    return sum(
        float(truth[liar, j]) * recorder.had.get((liar, j), 0.0) for j in range(len(accelerators))
    )


def test_over_reporting_never_pays_in_rounds() -> None:
    """The scheduler believes the misreport, jobs run at their true speed: the tenant loses."""
    lost = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = random_table(rng, most=4, widest=3)
        cluster = random_cluster(rng, truth.shape[1])
        liar = int(rng.integers(len(truth)))
        lie = truth.copy()
        lie[liar, 1:] *= 1 + rng.uniform(0.2, 2.0, truth.shape[1] - 1)
        honest = had(truth, truth, cluster, liar, 60)
        lying = had(truth, lie, cluster, liar, 60)
        lost.append(1 - lying / honest)
    assert min(lost) >= 0
    assert np.mean(lost) > 0.2


FOUR = np.array([[1.0, 1.2, 1.39], [1.0, 1.35, 1.6], [1.0, 1.5, 1.85], [1.0, 1.6, 2.15]])
"""four users whose speedups span the paper's range (§6.2)"""


def test_four_users_progress_alike_also_after_one_leaves() -> None:
    """Figure 4(a): user 4 leaves after 40 minutes; the others share its devices evenly."""
    jobs = [endless(i, n) for i in range(3) for n in range(30)]
    jobs += [endless(3, n, steps=2400 * 2.15 * 0.13) for n in range(30)]
    recorder = watched(
        Scenario(cluster=CLUSTER, speeds=speeds(FOUR), jobs=jobs, mechanism=Rounding(Oef())),
        120,
    )
    assert recorder.memory.present_s[3] < 0.2 * recorder.memory.present_s[0]
    _, placed = recorder.throughputs
    np.testing.assert_allclose(placed[:3], placed[0], rtol=0.03)


# -- §6.3.1: efficiency -------------------------------------------------------------------------


def total(policy: Policy, snap: Any) -> float:
    speed = policy.allocate(snap).speed
    assert speed is not None
    return float(speed.sum())


def test_cooperative_total_is_never_below_max_min_and_trading() -> None:
    """100 random instances in which all tenants rank the accelerators alike (§6.3.1)."""
    for seed in range(100):
        table, cluster = alike_table(np.random.default_rng(seed))
        snap = tenants(table, cluster)
        cooperative = total(OefCooperative(), snap)
        assert cooperative >= total(TenantMaxMin(), snap) * (1 - 1e-9)
        assert cooperative >= total(TenantMaxMin(capped=True), snap) * (1 - 1e-9)
        assert cooperative >= total(Trading(), snap) * (1 - 1e-9)


def test_totals_above_the_cooperative_one_cause_envy() -> None:
    """Without that order a few exceed it, by less than 1 %: the paper compares no such case."""
    exceeded = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        table = random_table(rng)
        snap = tenants(table, random_cluster(rng, table.shape[1]))
        cooperative = total(OefCooperative(), snap)
        assert cooperative >= total(TenantMaxMin(capped=True), snap) * (1 - 1e-9)
        for policy in (TenantMaxMin(), Trading()):
            if total(policy, snap) > cooperative * (1 + 1e-9):
                exceeded += 1
                assert total(policy, snap) < 1.01 * cooperative
                value = table @ policy.allocate(snap).share.T
                assert (value > value.diagonal()[:, None] * (1 + 1e-6)).any()
    assert 0 < exceeded <= 5
