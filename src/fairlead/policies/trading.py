"""Proportional shares of every accelerator, then trades at the second price (Gandiva_fair §3.4).

Terms as in the paper's §4: the *seller* gives slow devices for fast ones and has the greatest
speedup of fast over slow; the *buyer* gives fast devices for slow ones and has the least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Trade
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.policies.rules.tenant_rows import (
    TenantDivision,
    TenantPolicy,
    TenantTable,
    tenant_table,
    within_quotas,
)
from fairlead.solve.recent import RecentSolutions

_MIN_TRADE = 1e-9
"""minimum of a trade: devices relative to all of the accelerator, gain relative to the speedup"""
_MAX_PASSES = 1000


@dataclass(frozen=True)
class Trading(TenantPolicy):
    """Divide every accelerator by weight, then let tenants trade slow devices for fast ones.

    For each pair of accelerators the tenant that gains most from the fast one trades with the
    one that gains least, at the second-highest bid; without one they split the surplus. No
    tenant whose jobs have one workload ends below its proportional share; several workloads count
    as several tenants that share its weight. The objective is the total normalised throughput.
    """

    def divide(self, snap: Snapshot) -> TenantDivision:
        """Return the devices of every virtual tenant."""
        return self.divide_warm(snap, WarmStart())

    def divide_warm(self, snap: Snapshot, warm: WarmStart) -> TenantDivision:
        """Return the same; tenants that come again do not trade again."""
        table = tenant_table(snap, warm)
        names = [tenant.id for tenant in snap.tenants]
        names += [str(i) for i in range(len(names), table.tenants)]
        recent = warm.state(self, lambda: RecentSolutions(_trade_all))
        held, trades = recent.solve(
            *(table.gain, table.weight, table.capacity),
            *(tuple(table.tenant.tolist()), tuple(names), snap.cluster.accelerators),
        )

        def worth() -> float:
            return float((table.gain * held).sum())

        return within_quotas(snap, TenantDivision(table, held, worth, trades=trades))


def _trade_all(
    gain: FloatArray,
    weight: FloatArray,
    capacity: FloatArray,
    tenant: tuple[int, ...],
    names: tuple[str, ...],
    accelerators: tuple[str, ...],
) -> tuple[FloatArray, tuple[Trade, ...]]:
    """Return virtual tenants × accelerators → devices after all trades, and the trades."""
    owner = np.array(tenant, dtype=np.int64)
    table = TenantTable(owner, weight, gain, capacity, NO_INTS, len(names))
    market = _TradeMarket(table, names, accelerators)
    market.trade_all()
    return market.held, tuple(market.trades)


class _TradeMarket:
    """The devices of every virtual tenant, and the trades made so far."""

    def __init__(
        self, table: TenantTable, names: Sequence[str], accelerators: tuple[str, ...]
    ) -> None:
        self._table, self._names, self._accelerators = table, names, accelerators
        self._several = np.bincount(table.tenant, minlength=table.tenants) > 1
        whole = max(float(table.weight.sum()), 1e-300)
        self.held: FloatArray = table.weight[:, None] / whole * table.capacity
        self.trades: list[Trade] = []

    def trade_all(self) -> None:
        """Trade on all pairs of accelerators until a whole pass makes no trade."""
        pairs = list(self._pairs())
        for _ in range(_MAX_PASSES):
            before = len(self.trades)
            for fast, slow in pairs:
                self._trade_between(fast, slow)
            if len(self.trades) == before:
                return

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yield every pair as (fast, slow): the fastest first, each with the slowest first.

        Accelerators are ordered by their mean normalised throughput over the tenants by weight,
        then by the cluster's order. Accelerators without devices are omitted.
        """
        table = self._table
        mean = (table.weight[:, None] * table.gain).sum(axis=0)
        order = [j for j in np.argsort(-mean, kind="stable").tolist() if table.capacity[j] > 0]
        for place, fast in enumerate(order):
            for slow in reversed(order[place + 1 :]):
                yield fast, slow

    def _trade_between(self, fast: int, slow: int) -> None:
        """Trade while the highest bid for fast devices exceeds the lowest bid of their holders.

        Each trade exhausts the devices that one of the two gives, so the seller's speedup falls or
        the buyer's rises: there are fewer trades than tenants.
        """
        speedup, bid = _bids(self._table.gain[:, fast], self._table.gain[:, slow])
        while True:
            has_slow = self._holders(slow, speedup)
            has_fast = self._holders(fast, speedup)
            if not len(has_slow) or not len(has_fast):
                return
            # Ties go to the first row; rows are in the order of tenants' ids.
            seller = int(has_slow[bid[has_slow].argmax()])
            buyer = int(has_fast[bid[has_fast].argmin()])
            if not bid[seller] > bid[buyer] * (1 + _MIN_TRADE):
                return
            second = self._second_highest_bid(has_slow, bid, seller, buyer)
            price = float(bid[second] if second >= 0 else (bid[seller] + bid[buyer]) / 2)
            self._exchange(fast, slow, seller, buyer, second, price, bid)

    def _holders(self, accelerator: int, speedup: FloatArray) -> IntArray:
        """Return the rows that hold devices of an accelerator and can use one of the pair."""
        enough = self.held[:, accelerator] > _MIN_TRADE * self._table.capacity[accelerator]
        holders: IntArray = (enough & ~np.isnan(speedup)).nonzero()[0]
        return holders

    def _second_highest_bid(
        self, has_slow: IntArray, bid: FloatArray, seller: int, buyer: int
    ) -> int:
        """Return the row of the highest other bid that is not below the buyer's, or -1."""
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
                fast=self._accelerators[fast],
                slow=self._accelerators[slow],
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
        one = f"one {self._accelerators[fast]} is worth"
        many = f"{self._accelerators[slow]}"
        if second >= 0:
            set_by = f"the price of {price:.4g} is the second bid, {self._label(second)}'s"
        else:
            set_by = f"there is no other bid, so they split the surplus at {price:.4g}"
        return (
            f"{one} {bid[seller]:.4g} {many} to {self._label(seller)} and"
            f" {bid[buyer]:.4g} to {self._label(buyer)}; {set_by}"
        )

    def _label(self, row: int) -> str:
        """Return the tenant's name, with a number if several of its workloads trade."""
        owner = self._table.tenant
        name = self._names[int(owner[row])]
        if not self._several[owner[row]]:
            return name
        return f"{name} (workload {1 + int(np.count_nonzero(owner[:row] == owner[row]))})"


def _bids(fast: FloatArray, slow: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows → speedup of fast over slow (NaN: can use neither), and rows → bid.

    A tenant that cannot use the slow accelerator would give any number of devices of it; its bid
    counts as twice the greatest of the other bids.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        speedup = fast / slow
    usual = speedup[np.isfinite(speedup) & (speedup > 0)].max(initial=0.0)
    return speedup, np.where(np.isinf(speedup), 2.0 * (usual or 1.0), speedup)
