"""Trades of one tenant's fast devices for another's slow ones at the second price (§3.4, §3.5).

Words as in the paper's §3.5 and in the ``trading`` policy: the *seller* gives slow devices for
fast ones and has the greatest speedup, the *buyer* gives fast devices for slow ones and has the
least. Unlike that policy, which answers at once, tenants trade here a few devices in every
quantum, only by speeds that were measured and only what their jobs can use; and a trade is
undone when it has lost its ground.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from fairlead.mechanisms.gandiva_fair.allocation import SpeedKnowledge
from fairlead.mechanisms.gandiva_fair.memory import (
    AT,
    BUYER,
    DEVICES,
    FAST,
    LEDGER_ROWS,
    PRICE,
    SECOND,
    SELLER,
    SLOW,
    FairMemory,
)
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree

_LEAST = 1e-9
"""devices, and gains relative to the price, that are not worth a trade"""
_PARTIES = 2
"""tenants that it takes for a trade"""


class TicketMarket:
    """The devices of each accelerator that tenants hold, by weight and current trades."""

    def __init__(self, snap: Snapshot, known: SpeedKnowledge) -> None:
        self._snap, self._known = snap, known
        tenants = max(len(snap.tenants), int(snap.profiles.tenant.max(initial=-1)) + 1)
        self._wish = np.bincount(snap.tenant, snap.gang, tenants)
        active = self._wish > 0
        weight = TenantTree(snap.tenants).entitlements(active)
        self.held: FloatArray = weight[:, None] / max(weight.sum(), 1e-300) * snap.capacity
        """tenants × accelerators → devices"""

    @cached_property
    def _bids(self) -> tuple[FloatArray, FloatArray]:
        """Tenants × pairs of accelerators → the least and the greatest price of its trades.

        A tenant whose jobs differ sells at the least of their speedups and buys at the
        greatest, so that it gains for any job that gets the traded devices. A job that
        cannot run on both accelerators, or was not measured on both, keeps its tenant out.
        """
        snap, known = self._snap, self._known
        used = np.bincount(snap.profile).nonzero()[0]
        speed = np.where(known.seen[used], known.speed[used], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = speed[:, :, None] / speed[:, None, :]
        ratio[~((speed[:, :, None] > 0) & (speed[:, None, :] > 0))] = np.nan
        shape = (len(self.held), *ratio.shape[1:])
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        owner = snap.profiles.tenant[used]
        np.minimum.at(low, owner, ratio)
        np.maximum.at(high, owner, ratio)
        low[np.isinf(low)] = np.nan
        high[np.isinf(high)] = np.nan
        return low, high

    def keep(self, trades: FloatArray) -> BoolArray:
        """Apply the trades of before that still stand, oldest first; return which do.

        A trade is undone when a party has left or no longer has what it gave, when its jobs
        can no longer use what it got, or when it no longer gains.
        """
        stands = np.zeros(len(trades), dtype=bool)
        for i, trade in enumerate(trades):
            seller, buyer, fast, slow = trade[SELLER : SLOW + 1].astype(np.int64).tolist()
            price, devices = float(trade[PRICE]), float(trade[DEVICES])
            low, high = self._bids
            gains = low[seller, fast, slow] >= price * (1 - _LEAST) and high[
                buyer, fast, slow
            ] <= price * (1 + _LEAST)
            most = self._most(seller, buyer, fast, slow, price)
            stands[i] = gains and devices <= most * (1 + _LEAST)
            if stands[i]:
                self._exchange(trade)
        return stands

    def trade(self, at: float, step: float) -> Iterator[FloatArray]:
        """Give at most one trade of up to ``step`` fast devices for each pair of accelerators.

        Pairs come with the newest accelerator first, each with the oldest first.
        """
        if np.count_nonzero((self.held > _LEAST).any(axis=1)) < _PARTIES:
            return
        newest = self._known.newest
        for place, fast in enumerate(newest):
            for slow in reversed(newest[place + 1 :]):
                trade = self._best(at, fast, slow, step)
                if trade is not None:
                    self._exchange(trade)
                    yield trade

    def _best(self, at: float, fast: int, slow: int, step: float) -> FloatArray | None:
        low, high = self._bids
        bid, ask = low[:, fast, slow], high[:, fast, slow]
        sellers = ((self.held[:, slow] > _LEAST) & ~np.isnan(bid)).nonzero()[0]
        spare = self._wish - self.held.sum(axis=1) > _LEAST
        buyers = ((self.held[:, fast] > _LEAST) & ~np.isnan(ask) & spare).nonzero()[0]
        if not len(sellers) or not len(buyers):
            return None
        seller = int(sellers[bid[sellers].argmax()])
        buyer = int(buyers[ask[buyers].argmin()])
        if seller == buyer or not bid[seller] > ask[buyer] * (1 + _LEAST):
            return None
        others = sellers[(sellers != seller) & (sellers != buyer)]
        others = others[bid[others] >= ask[buyer]]
        second = int(others[bid[others].argmax()]) if len(others) else -1
        price = float(bid[second] if second >= 0 else (bid[seller] + ask[buyer]) / 2)
        devices = min(step, self._most(seller, buyer, fast, slow, price))
        if devices <= _LEAST:
            return None
        return np.array([at, seller, buyer, fast, slow, devices, price, second], dtype=np.float64)

    def _most(self, seller: int, buyer: int, fast: int, slow: int, price: float) -> float:
        """Return how many fast devices the two can exchange and use."""
        held, wish = self.held, self._wish
        most = min(
            held[buyer, fast], held[seller, slow] / price, wish[seller] - held[seller, fast]
        )
        if price > 1:
            most = min(most, (wish[buyer] - held[buyer].sum()) / (price - 1))
        return float(max(most, 0.0))

    def _exchange(self, trade: FloatArray) -> None:
        seller, buyer, fast, slow = trade[SELLER : SLOW + 1].astype(np.int64).tolist()
        gives, gets = trade[DEVICES] * trade[PRICE], trade[DEVICES]
        self.held[seller, slow] -= gives
        self.held[buyer, slow] += gives
        self.held[buyer, fast] -= gets
        self.held[seller, fast] += gets
        np.maximum(self.held, 0.0, out=self.held)  # below 0 only by rounding


def append_trades(
    ledger: FloatArray, at: float, undone: FloatArray, made: FloatArray
) -> FloatArray:
    """Return the ledger with trades undone, at minus their price (Figure 9), and trades made."""
    undone = undone.copy()
    undone[:, AT] = at
    undone[:, PRICE] *= -1.0
    return np.concatenate([ledger, undone[::-1], made])[-LEDGER_ROWS:]


def ledger(
    memory: FairMemory, tenants: Sequence[Tenant], accelerators: Sequence[str]
) -> list[dict[str, object]]:
    """Return the trades made and undone, oldest first, by the names of tenants."""
    return [
        {
            "at": float(row[AT]),
            "seller": tenants[int(row[SELLER])].id,
            "buyer": tenants[int(row[BUYER])].id,
            "fast": accelerators[int(row[FAST])],
            "slow": accelerators[int(row[SLOW])],
            "fast_devices": float(row[DEVICES]),
            "slow_devices": float(row[DEVICES] * abs(row[PRICE])),
            "price": float(abs(row[PRICE])),
            "second": tenants[int(row[SECOND])].id if row[SECOND] >= 0 else None,
            "undone": bool(row[PRICE] < 0),
        }
        for row in memory.ledger
    ]
