"""Properties of both OEF programs on random tenants, and against explicit programs."""

from typing import Any

import numpy as np
import pytest
from tests.support.tenant_instances import (
    alike_table,
    random_cluster,
    random_table,
    tenants,
)

from fairlead.policies.base import WarmStart
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.tenant_max_min import TenantMaxMin
from fairlead.policies.trading import Trading
from fairlead.solve.linear import Columns, LinearProgram, solve_lp
from fairlead.solve.oef.dual_prices import equal_bound

INSTANCES = 500
INF = float("inf")


def full_program(table: Any, capacity: Any, rows: Any, cost: Any, equal: bool) -> float:
    """Return the greatest ``cost`` · x subject to capacity and ``rows`` · x >= 0 (or = 0)."""
    count, width = table.shape
    limits = np.tile(np.eye(width), count)
    matrix = np.vstack([limits, rows]) if len(rows) else limits
    zero, free = np.zeros(len(rows)), np.full(len(rows), INF)
    program = LinearProgram(
        -cost,
        Columns.dense(matrix),
        np.concatenate([np.full(width, -INF), zero]),
        np.concatenate([capacity, zero if equal else free]),
        np.zeros(count * width),
        np.full(count * width, INF),
    )
    return -solve_lp(program).objective


def own(table: Any, i: int, scale: float) -> Any:
    """Return the coefficients of tenant i's throughput, multiplied by ``scale``."""
    row = np.zeros(table.shape)
    row[i] = table[i] * scale
    return row.ravel()


def envy(table: Any, i: int, other: int, weight: Any) -> Any:
    row = np.zeros(table.shape)
    row[i] = table[i] / weight[i]
    row[other] = -table[i] / weight[other]
    return row.ravel()


def draw(seed: int) -> tuple[Any, dict[str, int], Any, Any]:
    """Return a table, a cluster, weights and the cluster's devices."""
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    cluster = random_cluster(rng, table.shape[1])
    weight = rng.choice([0.5, 1.0, 1.0, 1.0, 2.0, 3.3], len(table))
    return table, cluster, weight, np.array(list(cluster.values()), float)


def test_oef_is_the_best_equal_division_and_a_vertex() -> None:
    for seed in range(INSTANCES):
        table, cluster, weight, capacity = draw(seed)
        allocation = Oef().allocate(tenants(table, cluster, weight))
        count, width = table.shape
        assert (allocation.share >= 0).all()
        assert (allocation.share.sum(axis=0) <= capacity * (1 + 1e-12)).all()
        assert allocation.speed is not None
        assert allocation.speed == pytest.approx((table * allocation.share).sum(axis=1), rel=1e-9)
        level = allocation.speed / weight
        assert level == pytest.approx(np.full(count, level[0]), rel=1e-9)
        rows = [own(table, 0, 1 / weight[0]) - own(table, i, 1 / weight[i]) for i in range(count)]
        best = full_program(table, capacity, np.array(rows[1:]), table.ravel(), True)
        assert allocation.speed.sum() == pytest.approx(best, rel=1e-9)
        assert np.count_nonzero(allocation.share) <= count + width - 1
        assert allocation.prove is not None
        proof = allocation.prove()
        bound = equal_bound(table, weight, capacity, proof.prices)
        assert proof.bound == pytest.approx(bound, rel=1e-12)
        assert abs(proof.gap) <= 1e-9


def test_oef_is_pareto_efficient() -> None:
    """No allocation gives all tenants as much and some more."""
    for seed in range(INSTANCES):
        table, cluster, weight, capacity = draw(seed)
        speed = Oef().allocate(tenants(table, cluster, weight)).speed
        assert speed is not None
        count, width = table.shape
        matrix = np.vstack(
            [np.tile(np.eye(width), count), *(own(table, i, 1) for i in range(count))]
        )
        program = LinearProgram(
            -table.ravel(),
            Columns.dense(matrix),
            np.concatenate([np.full(width, -INF), speed * (1 - 1e-12)]),
            np.concatenate([capacity, np.full(count, INF)]),
            np.zeros(table.size),
            np.full(table.size, INF),
        )
        assert -solve_lp(program).objective <= speed.sum() * (1 + 1e-8)


def test_over_reporting_never_pays_under_oef() -> None:
    for seed in range(INSTANCES):
        table, cluster, weight, _ = draw(seed)
        rng = np.random.default_rng(seed)
        liar = int(rng.integers(len(table)))
        honest = Oef().allocate(tenants(table, cluster, weight)).speed
        assert honest is not None
        for _ in range(2):
            lie = table.copy()
            more = rng.uniform(0.0, 3.0, table.shape[1] - 1) * (
                rng.random(len(table[0]) - 1) < 0.6
            )
            lie[liar, 1:] *= 1 + more
            share = Oef().allocate(tenants(lie, cluster, weight)).share[liar]
            assert (table[liar] * share).sum() <= honest[liar] * (1 + 1e-9)


def test_cooperative_is_envy_free_with_sharing_incentive_and_the_greatest_total() -> None:
    for seed in range(INSTANCES):
        table, cluster, weight, capacity = draw(seed)
        allocation = OefCooperative().allocate(tenants(table, cluster, weight))
        count = len(table)
        assert (allocation.share >= 0).all()
        assert (allocation.share.sum(axis=0) <= capacity * (1 + 1e-12)).all()
        value = table @ (allocation.share / weight[:, None]).T
        mine = value.diagonal()
        assert (value <= mine[:, None] * (1 + 1e-8)).all()
        split = (table * capacity).sum(axis=1) / weight.sum()
        assert (mine >= split * (1 - 1e-8)).all()
        pairs = [(i, o) for i in range(count) for o in range(count) if i != o]
        rows = np.array([envy(table, i, o, weight) for i, o in pairs])
        best = full_program(table, capacity, rows, table.ravel(), False)
        assert allocation.objective == pytest.approx(best, rel=1e-8)
        assert allocation.prove is not None
        assert abs(allocation.prove().gap) <= 1e-8


def test_oef_gives_adjacent_types_when_tenants_are_ordered_alike() -> None:
    for seed in range(INSTANCES):
        table, cluster = alike_table(np.random.default_rng(seed))
        share = Oef().allocate(tenants(table, cluster)).share
        for row in share > 1e-7:
            held = row.nonzero()[0]
            assert held[-1] - held[0] == len(held) - 1


def test_cooperative_can_skip_a_type_contrary_to_theorem_5_2() -> None:
    """The only optimum gives the second tenant devices of types 2 and 4, and none of type 3."""
    ratio = np.array([[1.2, 1.3, 1.4], [1.7, 1.4, 2.4], [2.1, 1.6, 2.5]])
    table = np.cumprod(np.column_stack([np.ones(3), ratio]), axis=1)
    capacity = np.array([4.0, 3.0, 1.0, 1.0])
    cluster = {f"gpu{j + 1}": int(count) for j, count in enumerate(capacity)}
    allocation = OefCooperative().allocate(tenants(table, cluster))
    assert ((allocation.share[1] > 1e-6) == [False, True, False, True]).all()
    # Of all envy-free allocations that give the second tenant type 3, none has that total.
    rows = [envy(table, i, o, np.ones(3)) for i in range(3) for o in range(3) if i != o]
    some = np.zeros((3, 4))
    some[1] = [0.0, 0.0, 1.0, 0.0]
    some[2] = [0.0, 0.0, -0.01, 0.0]
    best = full_program(table, capacity, np.array([*rows, some.ravel()]), table.ravel(), False)
    assert allocation.objective is not None
    assert best < allocation.objective - 1e-4


@pytest.mark.parametrize("policy", [Oef(), OefCooperative(), TenantMaxMin(), Trading()])
def test_units_of_speed_and_orders_of_jobs_and_tenants_do_not_matter(
    policy: Oef | OefCooperative | TenantMaxMin | Trading,
) -> None:
    for seed in range(INSTANCES // 8):
        table, cluster, _, _ = draw(seed)
        rng = np.random.default_rng(seed)
        usual = policy.allocate(tenants(table, cluster))
        scaled = table * rng.uniform(0.01, 100.0, (len(table), 1))
        again = policy.allocate(tenants(scaled, cluster))
        np.testing.assert_allclose(again.share, usual.share, rtol=1e-9, atol=1e-9)
        order = rng.permutation(len(table))
        # Row i is now tenant order[i]'s, and tenants keep their ids.
        shuffled = tenants(table[order], cluster, owner=order.tolist())
        np.testing.assert_array_equal(policy.allocate(shuffled).share, usual.share)


@pytest.mark.parametrize("policy", [Oef(), OefCooperative(), TenantMaxMin()])
def test_weights_are_replicated_rows(policy: Oef | OefCooperative | TenantMaxMin) -> None:
    """Identical tenants also show that classes do not change the shares of tenants."""
    for seed in range(INSTANCES // 5):
        table, cluster, _, _ = draw(seed)
        times = np.random.default_rng(seed).integers(1, 4, len(table))
        weighted = policy.allocate(tenants(table, cluster, times.astype(float)))
        rows = np.repeat(np.arange(len(table)), times)
        repeated = policy.allocate(tenants(table[rows], cluster))
        assert repeated.objective == pytest.approx(weighted.objective, rel=1e-9)
        for i, count in enumerate(times.tolist()):
            part = np.broadcast_to(weighted.share[i] / count, (count, table.shape[1]))
            np.testing.assert_allclose(repeated.share[rows == i], part, atol=1e-7)


def test_tenants_that_cannot_use_exhausted_accelerators_keep_rising() -> None:
    """With speeds of 0 the levels agree with one program per level and tenant."""
    checked = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        table, cluster, weight, capacity = draw(seed)
        table[:, 1:][rng.random(table[:, 1:].shape) < 0.5] = 0.0
        table[rng.random(len(table)) < 0.4, 0] = 0.0
        table = table[table.any(axis=1)]
        if not len(table):
            continue
        division = Oef().divide(tenants(table, cluster, weight[: len(table)].tolist()))
        gain, mass = division.table.gain, division.table.weight
        assert (division.devices.sum(axis=0) <= capacity * (1 + 1e-12)).all()
        assert (division.devices[gain <= 0] == 0).all()
        level = division.throughput / mass
        slow = water_filling(gain, mass, capacity)
        np.testing.assert_allclose(level, slow, rtol=1e-7)
        checked += level.max() > level.min() * 1.01
    assert checked > 50


def test_warm_starts_change_nothing() -> None:
    """Instances come twice in turn, with one solver state for all of them."""
    instances = [tenants(*draw(seed)[:2], draw(seed)[2].tolist()) for seed in (1, 2, 3, 1, 2, 3)]
    for policy in (Oef(), OefCooperative(), TenantMaxMin(), TenantMaxMin(capped=True), Trading()):
        warm = WarmStart()
        for snap in instances:
            cold, result = policy.allocate(snap), policy.allocate_warm(snap, warm)
            np.testing.assert_array_equal(result.share, cold.share)
            assert result.objective == cold.objective
            if cold.prove is not None and result.prove is not None:
                assert result.prove().gap == cold.prove().gap


def water_filling(gain: Any, weight: Any, capacity: Any) -> Any:
    """Return the lexicographic max-min levels by plain programs."""
    level, fixed = np.zeros(len(gain)), np.zeros(len(gain), bool)
    while not fixed.all():
        t = raised(gain, weight, capacity, level, ~fixed)
        floor = np.where(fixed, level, t)
        for i in np.flatnonzero(~fixed):
            if raised(gain, weight, capacity, floor, np.arange(len(gain)) == i) <= t * (1 + 1e-8):
                fixed[i], level[i] = True, t
    return level


def raised(gain: Any, weight: Any, capacity: Any, level: Any, rising: Any) -> float:
    count, width = gain.shape
    matrix = np.zeros((width + count, 1 + gain.size))
    matrix[:width, 1:] = np.tile(np.eye(width), count)
    for i in range(count):
        matrix[width + i, 1:] = own(gain, i, 1 / weight[i])
    matrix[width:, 0] = -rising.astype(float)
    program = LinearProgram(
        np.append(-1.0, np.zeros(gain.size)),
        Columns.dense(matrix),
        np.append(np.full(width, -INF), np.where(rising, 0.0, level * (1 - 1e-9))),
        np.append(capacity, np.full(count, INF)),
        np.zeros(1 + gain.size),
        np.full(1 + gain.size, INF),
    )
    return -solve_lp(program).objective
