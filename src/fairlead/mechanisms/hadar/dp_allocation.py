"""Hadar's dynamic programme over the queue (Algorithm 2, DP_allocation), with bounded state."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms.hadar.bid_queue import BidQueue
from fairlead.mechanisms.hadar.find_alloc import (
    Bid,
    DeviceDeal,
    DeviceMarket,
    MarketState,
)
from fairlead.model.arrays import FloatArray, IntArray


class _Admitted(NamedTuple):
    """The jobs admitted so far, last first."""

    before: "_Admitted | None"
    place: int
    deal: DeviceDeal


class _Partial(NamedTuple):
    """One way to have decided on the first jobs of the queue."""

    payoff: float
    state: MarketState
    trail: _Admitted | None


_Choice = DeviceDeal | int | None
"""the deal at which a job is admitted, the accelerator of its only device, or None: passed over"""
_Way = tuple[float, int, _Partial, _Choice]
"""payoff and key of the state after one more job; the way before, and the choice"""
_MAX_COMPILED = 1 << 20
"""pairs of a partial solution and a job for which the compiled loop, which compares all partial
solutions, has room and is fast"""


def allocate_queue(
    market: DeviceMarket, free: Sequence[int], queue: Sequence[Bid], *, width: int
) -> list[tuple[int, DeviceDeal]]:
    """Return (place in the queue, deal) of those admitted, so that the sum of payoffs is greatest.

    ``free`` is cells → devices to be sold.

    For each job in turn there are two choices, to admit it at FIND_ALLOC's deal or to pass it
    over. Ways that leave the same devices free are one subproblem, of which the better stays
    (the paper's saved results). Of all others the ``width`` best so far are followed; with
    2**len(queue) or more nothing is cut off. A job without a deal is passed over: the paper's
    line 8 would end the queue there.
    """
    if not len(queue):
        return []
    bids = BidQueue.of(queue)
    singles = allocate_singles(market, free, bids, width=width)
    if singles is not None:
        return _deals(market, bids, *singles)
    front = [_Partial(0.0, market.opening(free), None)]
    for place, bid in enumerate(queue):
        ways: list[_Way] = [(p.payoff, p.state.key, p, None) for p in front]
        ways += (
            _one_device_ways(market, front, bid) if bid.gang == 1 else _ways(market, front, bid)
        )
        if len(ways) > len(front):
            front = _best(market, ways, place, bid, width)
        elif not any(partial.state.total for partial in front):
            break
    return _admitted_list(front[0].trail)


def allocate_singles(
    market: DeviceMarket, free: Sequence[int], queue: BidQueue, *, width: int
) -> tuple[IntArray, IntArray, FloatArray] | None:
    """Return the places of those admitted, the cell of each and its cost, by the compiled loop.

    None if it is not there or has no room, or if a job needs several devices.
    """
    if compiled is None or len(queue) * width > _MAX_COMPILED or not queue.single:
        return None
    offered = len(market.cells.ranges)
    worth = np.ascontiguousarray(queue.together[:, :offered])
    sold, cost = np.empty(len(queue), dtype=np.int64), np.empty(len(queue))
    ranges = np.array(market.cells.ranges, dtype=np.int64)
    left = np.array(free, dtype=np.int64)
    compiled.sell_singles(worth, ranges, market.price_table, left, width, sold, cost)
    places = (sold >= 0).nonzero()[0]
    return places, sold[places], cost[places]


def _deals(
    market: DeviceMarket, queue: BidQueue, places: IntArray, cells: IntArray, cost: FloatArray
) -> list[tuple[int, DeviceDeal]]:
    here = queue.together[places, np.array(market.cells.accelerator, dtype=np.int64)[cells]]
    columns = (places.tolist(), cells.tolist(), here.tolist(), cost.tolist())
    return [
        (place, DeviceDeal(((cell, 1),), worth_here, paid))
        for place, cell, worth_here, paid in zip(*columns, strict=True)
    ]


def _ways(market: DeviceMarket, front: list[_Partial], bid: Bid) -> list[_Way]:
    """Return the ways in which the job is admitted."""
    ways: list[_Way] = []
    for partial in front:
        deal = market.find(partial.state, bid)
        if deal is not None:
            key = market.key_after(partial.state, deal)
            ways.append((partial.payoff + deal.payoff, key, partial, deal))
    return ways


def _one_device_ways(market: DeviceMarket, front: list[_Partial], bid: Bid) -> list[_Way]:
    """Return the ways in which the job is admitted on its only device.

    This loop takes most of Hadar's time, so deals are made of the few best ways only.
    """
    ways: list[_Way] = []
    units = market.units
    offered = len(market.cells.ranges)
    worths = [(k, worth) for k, worth in enumerate(bid.together[:offered]) if worth > 0.0]
    for partial in front:
        payoff, state, _ = partial
        best, choice = 0.0, -1
        cheapest = state.cheapest
        for accelerator, worth in worths:
            gain = worth - cheapest[accelerator][0]
            if gain > best:
                best, choice = gain, accelerator
        if choice >= 0:
            key = state.key - units[cheapest[choice][1]]
            ways.append((payoff + best, key, partial, choice))
    return ways


def _best(
    market: DeviceMarket, ways: list[_Way], place: int, bid: Bid, width: int
) -> list[_Partial]:
    """Return the best ways, one for each set of devices left free."""
    ways.sort(key=itemgetter(0), reverse=True)
    kept: dict[int, _Partial] = {}
    for payoff, key, before, choice in ways:
        if key in kept:
            continue
        if choice is None:
            kept[key] = before
        else:
            state = before.state
            if isinstance(choice, int):
                deal = market.one_device(state, bid, choice)
                after = market.sell_one(state, choice, key)
            else:
                deal, after = choice, market.sell(state, choice)
            kept[key] = _Partial(payoff, after, _Admitted(before.trail, place, deal))
        if len(kept) == width:
            break
    return list(kept.values())


def _admitted_list(trail: _Admitted | None) -> list[tuple[int, DeviceDeal]]:
    admitted = []
    while trail is not None:
        admitted.append((trail.place, trail.deal))
        trail = trail.before
    return admitted[::-1]
