"""Trades of the Gandiva_fair paper (§3.4, Table 3) and of OEF §2.4, with exact values."""

import numpy as np
import pytest
from tests.support.tenant_instances import tenants

from fairlead.policies.trading import Trading


def test_table_3_ends_where_the_paper_does() -> None:
    """Gandiva_fair Table 3: 12 V100 and 60 K80; aggregates 40, 40 and 50."""
    snap = tenants([(1, 1.25), (1, 5), (1, 6.25)], {"k80": 60, "v100": 12})
    result = Trading().allocate(snap)
    np.testing.assert_allclose(result.share, [[40, 0], [20, 4], [0, 8]], atol=1e-9)
    assert result.speed == pytest.approx([40, 40, 50], rel=1e-12)
    (trade,) = result.trades
    assert (trade.seller, trade.buyer, trade.second) == ("u2", "u0", "u1")
    assert (trade.slow, trade.fast, trade.price) == ("k80", "v100", 5.0)
    assert (trade.slow_devices, trade.fast_devices) == (20.0, 4.0)
    assert trade.why == (
        "one v100 is worth 6.25 k80 to u2 and 1.25 to u0; the price of 5 is the second bid, u1's"
    )


@pytest.mark.parametrize(
    ("reported", "prices", "fast", "really"),
    [
        (2.0, (3.0, 2.5), (4 / 45, 7 / 15, 4 / 9), (53 / 45, 7 / 5, 16 / 9)),
        (2.8, (3.0, 2.9), (28 / 261, 13 / 29, 4 / 9), (317 / 261, 39 / 29, 16 / 9)),
    ],
)
def test_section_2_4_of_oef_honest_and_with_the_lie(
    reported: float, prices: tuple[float, ...], fast: tuple[float, ...], really: tuple[float, ...]
) -> None:
    """OEF §2.4: printed as 1.18, 1.41, 1.76 and, when u1 reports 2.8, 1.22, 1.35, 1.76."""
    result = Trading().allocate(tenants([(1, reported), (1, 3), (1, 4)]))
    np.testing.assert_allclose(result.share, np.column_stack([(1, 0, 0), fast]), atol=1e-12)
    truth = np.array([(1, 2), (1, 3), (1, 4)])
    assert (truth * result.share).sum(axis=1) == pytest.approx(really, rel=1e-12)
    assert [trade.price for trade in result.trades] == pytest.approx(prices, rel=1e-12)
    assert [trade.second for trade in result.trades] == ["u1", None]


def test_who_envies_whom_in_section_2_4_of_oef() -> None:
    """ "u3 prefers u2's allocation": trades are not envy-free."""
    result = Trading().allocate(tenants([(1, 2), (1, 3), (1, 4)]))
    assert result.share[1] @ (1, 4) > result.share[2] @ (1, 4) + 0.08


def test_identical_tenants_bid_the_surplus_away() -> None:
    """Gandiva_fair §5.5: equal bids set the price, so the seller gains nothing by the trade."""
    snap = tenants([(1, 1.2), (1, 3), (1, 3), (1, 3)], {"k80": 8, "v100": 4})
    result = Trading().allocate(snap)
    assert result.speed is not None
    split = np.array([1.2, 3, 3, 3]) + 2
    assert result.speed[0] > split[0] * 1.5
    assert result.speed[1] == pytest.approx(split[1], rel=1e-12)
    assert result.trades[0].price == 3.0
