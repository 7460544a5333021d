"""Properties of trading on random tenants."""

from typing import Any

import numpy as np
import pytest
from tests.support.tenant_instances import random_cluster, random_table, tenants

from fairlead.model.allocation import Allocation
from fairlead.policies.trading import Trading

INSTANCES = 500


def drawn(seed: int) -> tuple[Any, Any, Any, Allocation]:
    """Return speedups, devices and weights, and the traded allocation; some speeds are 0."""
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    cluster = random_cluster(rng, table.shape[1])
    weight = rng.choice([0.5, 1.0, 1.0, 2.0], len(table))
    if rng.random() < 0.3:
        table[:, 1:][rng.random(table[:, 1:].shape) < 0.2] = 0.0
    allocation = Trading().allocate(tenants(table, cluster, weight))
    return table, np.array(list(cluster.values()), float), weight, allocation


def test_no_tenant_is_below_its_proportional_share() -> None:
    gained = 0
    for seed in range(INSTANCES):
        table, capacity, weight, result = drawn(seed)
        split = weight[:, None] / weight.sum() * capacity
        assert (result.share >= 0).all()
        np.testing.assert_allclose(result.share.sum(axis=0), capacity, rtol=1e-9)
        before, after = (table * split).sum(axis=1), (table * result.share).sum(axis=1)
        assert (after >= before * (1 - 1e-9)).all()
        gained += bool((after > before * 1.01).any())
    assert gained > INSTANCES / 2


def test_no_pair_of_tenants_could_still_trade() -> None:
    for seed in range(INSTANCES):
        table, capacity, _, result = drawn(seed)
        holds = result.share > 1e-6 * capacity
        for fast in range(table.shape[1]):
            for slow in range(table.shape[1]):
                # A seller gains below its speedup, a buyer above its own.
                value = table[:, [fast, slow]]
                for seller in np.flatnonzero(holds[:, slow] & value.any(axis=1)):
                    for buyer in np.flatnonzero(holds[:, fast] & value.any(axis=1)):
                        # speedup(seller) <= speedup(buyer), without dividing by 0
                        left = value[seller, 0] * value[buyer, 1]
                        right = value[buyer, 0] * value[seller, 1]
                        assert left <= right * (1 + 1e-6) + 1e-12


def test_the_trades_lead_from_the_proportional_shares_to_the_result() -> None:
    for seed in range(INSTANCES):
        table, capacity, weight, result = drawn(seed)
        held = weight[:, None] / weight.sum() * capacity
        column = {f"gpu{j + 1}": j for j in range(len(capacity))}
        for trade in result.trades:
            fast, slow = column[trade.fast], column[trade.slow]
            seller, buyer = int(trade.seller[1:]), int(trade.buyer[1:])
            assert trade.slow_devices == pytest.approx(trade.price * trade.fast_devices)
            assert trade.second not in (trade.seller, trade.buyer)
            keen = np.inf if not table[seller, slow] else table[seller, fast] / table[seller, slow]
            assert trade.price <= keen * (1 + 1e-9)
            assert trade.price * table[buyer, slow] >= table[buyer, fast] * (1 - 1e-9)
            if trade.second is not None and table[int(trade.second[1:]), slow]:
                bid = table[int(trade.second[1:])]
                assert trade.price == pytest.approx(bid[fast] / bid[slow])
                assert held[int(trade.second[1:]), slow] > 0
            held[seller, slow] -= trade.slow_devices
            held[buyer, slow] += trade.slow_devices
            held[seller, fast] += trade.fast_devices
            held[buyer, fast] -= trade.fast_devices
            assert (held >= -1e-9).all()
        np.testing.assert_allclose(held, result.share, atol=1e-8)
