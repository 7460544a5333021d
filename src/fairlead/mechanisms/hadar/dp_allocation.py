"""Hadar's dynamic programme over the queue (Algorithm 2, DP_allocation), with bounded state."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.mechanisms.hadar.find_alloc import (
    Bid,
    DeviceDeal,
    DeviceMarket,
    MarketState,
)


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


def allocate_queue(
    market: DeviceMarket, opening: MarketState, queue: Sequence[Bid], *, width: int
) -> list[tuple[int, DeviceDeal]]:
    """Return (place in the queue, deal) of those admitted, so that the sum of payoffs is greatest.

    For each job in turn there are two choices, to admit it at FIND_ALLOC's deal or to pass it
    over. Ways that leave the same devices free are one subproblem, of which the better stays
    (the paper's saved results). Of all others the ``width`` best so far are followed; with
    2**len(queue) or more nothing is cut off. A job without a deal is passed over: the paper's
    line 8 would end the queue there.
    """
    front = [_Partial(0.0, opening, None)]
    for place, bid in enumerate(queue):
        ways: list[tuple[float, _Partial, DeviceDeal | None]] = [
            (p.payoff, p, None) for p in front
        ]
        for partial in front:
            deal = market.find(partial.state, bid)
            if deal is not None:
                ways.append((partial.payoff + deal.payoff, partial, deal))
        if len(ways) > len(front):
            front = _best(market, ways, place, width)
        elif not any(partial.state.total for partial in front):
            break
    return _admitted_list(front[0].trail)


def _best(
    market: DeviceMarket,
    ways: list[tuple[float, _Partial, DeviceDeal | None]],
    place: int,
    width: int,
) -> list[_Partial]:
    """Return the best ways, one for each set of devices left free."""
    ways.sort(key=lambda way: -way[0])
    kept: dict[tuple[int, ...], _Partial] = {}
    for payoff, before, deal in ways:
        partial = before
        if deal is not None:
            state = market.sell(before.state, deal)
            partial = _Partial(payoff, state, _Admitted(before.trail, place, deal))
        kept.setdefault(partial.state.free, partial)
        if len(kept) == width:
            break
    return list(kept.values())


def _admitted_list(trail: _Admitted | None) -> list[tuple[int, DeviceDeal]]:
    admitted = []
    while trail is not None:
        admitted.append((trail.place, trail.deal))
        trail = trail.before
    return admitted[::-1]
