"""Proportional shares of every accelerator, then trades at the second price (Gandiva_fair §3.4).

Words as in the paper's §4: the *seller* gives slow devices for fast ones and has the greatest
speedup of fast over slow, the *buyer* gives fast devices for slow ones and has the least.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Trade
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    TenantTable,
    tenant_table,
    within_quotas,
)

_LEAST = 1e-9
"""devices, relative to all of the kind, and gains, relative to the speedup, not worth a trade"""
_MOST_PASSES = 1000


@dataclass(frozen=True)
class Trading(TenantPolicy):
    """Divide every accelerator by weight, then let tenants trade slow devices for fast ones.

    For each pair of accelerators the tenant that gains most from the fast one trades with the
    one that gains least, at the second-highest bid; without one they split the surplus. Nobody
    ends below its proportional share. The objective is the total normalised throughput.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        table = tenant_table(snap)
        names = [tenant.id for tenant in snap.tenants]
        names += [str(i) for i in range(len(names), table.tenants)]
        market = _TradeMarket(table, names, snap.cluster.accelerators)
        market.trade_all()

        def worth() -> float:
            return float((table.gain * market.held).sum())

        return within_quotas(
            snap, TenantDivision(table, market.held, worth, trades=tuple(market.trades))
        )


class _TradeMarket:
    """What every virtual tenant holds, and the trades made so far."""

    def __init__(self, table: TenantTable, names: list[str], kinds: tuple[str, ...]) -> None:
        self._table, self._names, self._kinds = table, names, kinds
        self._several = np.bincount(table.tenant, minlength=table.tenants) > 1
        whole = max(float(table.weight.sum()), 1e-300)
        self.held: FloatArray = table.weight[:, None] / whole * table.capacity
        self.trades: list[Trade] = []

    def trade_all(self) -> None:
        """Go through the pairs of accelerators until a whole pass brings no trade."""
        pairs = list(self._pairs())
        for _ in range(_MOST_PASSES):
            before = len(self.trades)
            for fast, slow in pairs:
                self._trade_between(fast, slow)
            if len(self.trades) == before:
                return

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Give every pair as (fast, slow): the fastest first, each with the slowest first.

        An accelerator is fast by its mean normalised throughput over the tenants by weight;
        equally fast ones keep the cluster's order. Those without devices are left out.
        """
        table = self._table
        mean = (table.weight[:, None] * table.gain).sum(axis=0)
        order = [j for j in np.argsort(-mean, kind="stable").tolist() if table.capacity[j] > 0]
        for place, fast in enumerate(order):
            for slow in reversed(order[place + 1 :]):
                yield fast, slow

    def _trade_between(self, fast: int, slow: int) -> None:
        """Trade while the keenest holder of slow devices gains from the least keen of fast ones.

        Each trade leaves one of the two without what it gave, and of those who are left the
        seller's speedup falls and the buyer's rises: there are fewer trades than tenants.
        """
        speedup, bid = _bids(self._table.gain[:, fast], self._table.gain[:, slow])
        while True:
            has_slow = self._holders(slow, speedup)
            has_fast = self._holders(fast, speedup)
            if not len(has_slow) or not len(has_fast):
                return
            # Rows are in the order of tenants' ids, which breaks ties.
            seller = int(has_slow[bid[has_slow].argmax()])
            buyer = int(has_fast[bid[has_fast].argmin()])
            if not bid[seller] > bid[buyer] * (1 + _LEAST):
                return
            second = self._second_highest_bid(has_slow, bid, seller, buyer)
            price = float(bid[second] if second >= 0 else (bid[seller] + bid[buyer]) / 2)
            self._exchange(fast, slow, seller, buyer, second, price, bid)

    def _holders(self, kind: int, speedup: FloatArray) -> IntArray:
        """Return who holds devices of a kind and can use at least one of the pair."""
        enough = self.held[:, kind] > _LEAST * self._table.capacity[kind]
        holders: IntArray = (enough & ~np.isnan(speedup)).nonzero()[0]
        return holders

    def _second_highest_bid(
        self, has_slow: IntArray, bid: FloatArray, seller: int, buyer: int
    ) -> int:
        """Return who bids most besides the two tenants, at least what the buyer asks, or -1."""
        owner = self._table.tenant
        others = has_slow[(owner[has_slow] != owner[seller]) & (owner[has_slow] != owner[buyer])]
        others = others[(bid[others] >= bid[buyer]) & (bid[others] > 0)]
        return int(others[bid[others].argmax()]) if len(others) else -1

    def _exchange(
        self,
        fast: int,
        slow: int,
        seller: int,
        buyer: int,
        second: int,
        price: float,
        bid: FloatArray,
    ) -> None:
        held = self.held
        if held[seller, slow] <= held[buyer, fast] * price:
            gives, gets = float(held[seller, slow]), float(held[seller, slow]) / price
        else:
            gives, gets = float(held[buyer, fast]) * price, float(held[buyer, fast])
        held[seller, slow] = max(held[seller, slow] - gives, 0.0)
        held[buyer, slow] += gives
        held[buyer, fast] = max(held[buyer, fast] - gets, 0.0)
        held[seller, fast] += gets
        owner, name = self._table.tenant, self._names
        self.trades.append(
            Trade(
                seller=name[owner[seller]],
                buyer=name[owner[buyer]],
                fast=self._kinds[fast],
                slow=self._kinds[slow],
                fast_devices=gets,
                slow_devices=gives,
                price=price,
                second=name[owner[second]] if second >= 0 else None,
                why=self._why(fast, slow, seller, buyer, second, price, bid),
            )
        )

    def _why(
        self,
        fast: int,
        slow: int,
        seller: int,
        buyer: int,
        second: int,
        price: float,
        bid: FloatArray,
    ) -> str:
        one = f"one {self._kinds[fast]} is worth"
        many = f"{self._kinds[slow]}"
        if second >= 0:
            set_by = f"the price of {price:.4g} is the second bid, {self._label(second)}'s"
        else:
            set_by = f"nobody else bids, so they meet half-way at {price:.4g}"
        return (
            f"{one} {bid[seller]:.4g} {many} to {self._label(seller)} and"
            f" {bid[buyer]:.4g} to {self._label(buyer)}; {set_by}"
        )

    def _label(self, row: int) -> str:
        """Return the tenant's name, with a number where several workloads trade for it."""
        owner = self._table.tenant
        name = self._names[int(owner[row])]
        if not self._several[owner[row]]:
            return name
        return f"{name} (workload {1 + int(np.count_nonzero(owner[:row] == owner[row]))})"


def _bids(fast: FloatArray, slow: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows → speedup of fast over slow (NaN: can use neither), and what it bids.

    Who cannot use the slow accelerator would give any number of it; its bid counts as twice
    the greatest of the others.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        speedup = fast / slow
    usual = speedup[np.isfinite(speedup) & (speedup > 0)].max(initial=0.0)
    return speedup, np.where(np.isinf(speedup), 2.0 * (usual or 1.0), speedup)
