"""Hadar's FIND_ALLOC: the devices that pay a job best at the prices of the moment."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fairlead.mechanisms.hadar.prices import Prices
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster

UNAFFORDABLE = math.inf
"""price where no device is left: no job can pay it"""


class Bid(NamedTuple):
    """A job's offer for running its gang to the end, by the slowest accelerator in it."""

    row: int
    gang: int
    together: Sequence[float]
    """accelerators → utility when the whole gang is on one node; 0 where it cannot run"""
    spread: Sequence[float]
    """accelerators → utility when it is on several nodes"""


class DeviceDeal(NamedTuple):
    """A gang's devices, as counts of cells, with what they are worth and what they cost."""

    take: tuple[tuple[int, int], ...]
    """(cell, devices) pairs"""
    utility: float
    cost: float

    @property
    def payoff(self) -> float:
        """Utility less cost: the dual variable of the job (line 29 of Algorithm 2)."""
        return self.utility - self.cost


class MarketState(NamedTuple):
    """The free devices of each cell, and the price of one."""

    free: list[int]
    price: list[float]
    total: int
    key: int
    """the free devices of all cells in one number; states are the same if it is"""
    cheapest: list[tuple[float, int]]
    """accelerators → least price of a device, and the first cell with that price"""


@dataclass(frozen=True)
class DeviceCells:
    """The devices that are up by node and accelerator, cells of one accelerator side by side."""

    accelerator: Sequence[int]
    node: Sequence[int]
    devices: Sequence[tuple[int, ...]]

    @classmethod
    def of(cls, cluster: Cluster, usable: Iterable[int]) -> "DeviceCells":
        """Return the cells of these devices."""
        device = np.fromiter(usable, dtype=np.int64)
        nodes = len(cluster.nodes)
        code = cluster.accelerator_of[device] * nodes + cluster.node_of[device]
        order = code.argsort(kind="stable")
        code, devices = code[order], device[order].tolist()
        first = np.append(True, code[1:] != code[:-1])[: len(code)].nonzero()[0]
        accelerator, node = np.divmod(code[first], nodes)
        spans = pairwise([*first.tolist(), len(code)])
        return cls(
            accelerator.tolist(),
            node.tolist(),
            [tuple(devices[begin:end]) for begin, end in spans],
        )

    def cell_of(self, devices: IntArray) -> IntArray:
        """Return devices → cell, of devices that are up."""
        own = np.full(1 + max(max(here) for here in self.devices), -1, dtype=np.int64)
        for cell, here in enumerate(self.devices):
            own[list(here)] = cell
        return own[devices]

    @cached_property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """accelerators → first cell and the one after the last."""
        count = max(self.accelerator, default=-1) + 1
        spans = []
        for accelerator in range(count):
            own_cells = [
                cell for cell, other in enumerate(self.accelerator) if other == accelerator
            ]
            spans.append((own_cells[0], own_cells[-1] + 1) if own_cells else (0, 0))
        return spans

    @cached_property
    def nodes_differ(self) -> bool:
        """Whether no two nodes have the same devices."""
        shapes = self.shapes.values()
        return len(set(shapes)) == len(shapes)

    @cached_property
    def shapes(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Node → the accelerators and numbers of its devices that are up."""
        shape: dict[int, list[tuple[int, int]]] = {}
        columns = self.node, self.accelerator, self.devices
        for node, accelerator, devices in zip(*columns, strict=True):
            shape.setdefault(node, []).append((accelerator, len(devices)))
        return {node: tuple(here) for node, here in shape.items()}

    @cached_property
    def mixed_nodes(self) -> Sequence[Sequence[int]]:
        """The cells of each node that has several accelerators."""
        by_node: dict[int, list[int]] = {}
        for cell, node in enumerate(self.node):
            by_node.setdefault(node, []).append(cell)
        return [cells for cells in by_node.values() if len(cells) > 1]


@dataclass(frozen=True)
class DeviceMarket:
    """The cells on offer with their price bounds."""

    cells: DeviceCells
    capacity: Sequence[int]
    """cells → devices that count as the whole in Eq. 5"""
    prices: Prices
    communication: float
    """part of its utility that a gang on very many nodes pays for talking across them"""
    mixed: bool = True
    """whether a gang may have devices of several accelerators"""

    def opening(self, free: Sequence[int]) -> MarketState:
        """Return the state in which these devices of each cell are free."""
        price = [prices[left] for prices, left in zip(self._price_list, free, strict=True)]
        key = sum(unit * left for unit, left in zip(self.units, free, strict=True))
        cheapest = [self._cheapest(price, k) for k in range(len(self.cells.ranges))]
        return MarketState(list(free), price, sum(free), key, cheapest)

    def sell(self, state: MarketState, deal: DeviceDeal) -> MarketState:
        """Return the state after a deal: fewer devices free, dearer (lines 10-12)."""
        free, price, cheapest = state.free.copy(), state.price.copy(), state.cheapest.copy()
        total = state.total
        accelerator = self.cells.accelerator
        for cell, count in deal.take:
            free[cell] -= count
            price[cell] = self._price_list[cell][free[cell]]
            total -= count
            cheapest[accelerator[cell]] = self._cheapest(price, accelerator[cell])
        return MarketState(free, price, total, self.key_after(state, deal), cheapest)

    def sell_one(self, state: MarketState, accelerator: int, key: int) -> MarketState:
        """Return the state after the cheapest device of an accelerator is sold; its key is given.

        It equals ``sell`` with ``one_device``, for the loop that takes most of Hadar's time.
        """
        free, price, cheapest = state.free.copy(), state.price.copy(), state.cheapest.copy()
        cell = cheapest[accelerator][1]
        left = free[cell] = free[cell] - 1
        least = price[cell] = self._price_list[cell][left]
        first, last = self.cells.ranges[accelerator]
        only = last - first == 1
        cheapest[accelerator] = (least, cell) if only else self._cheapest(price, accelerator)
        return MarketState(free, price, state.total - 1, key, cheapest)

    def key_after(self, state: MarketState, deal: DeviceDeal) -> int:
        """Return the key of the state after a deal."""
        key, units = state.key, self.units
        for cell, count in deal.take:
            key -= count * units[cell]
        return key

    def _cheapest(self, price: list[float], accelerator: int) -> tuple[float, int]:
        first, last = self.cells.ranges[accelerator]
        least = min(price[first:last], default=UNAFFORDABLE)
        return least, price.index(least, first) if first < last else first

    @cached_property
    def units(self) -> Sequence[int]:
        """cells → part of a state's key that stands for one free device."""
        bits = max(self.capacity, default=0).bit_length()
        return [1 << bits * cell for cell in range(len(self.capacity))]

    @cached_property
    def _price_list(self) -> Sequence[Sequence[float]]:
        """cells → devices left → price of one."""
        known: dict[tuple[int, int], list[float]] = {}
        price_lists = []
        for accelerator, of in zip(self.cells.accelerator, self.capacity, strict=True):
            if (accelerator, of) not in known:
                known[accelerator, of] = [UNAFFORDABLE, *self.prices.rising(accelerator, of)]
            price_lists.append(known[accelerator, of])
        return price_lists

    @property
    def price_table(self) -> FloatArray:
        """cells × devices left → price of one; infinite beyond the devices of a cell."""
        price_lists = self._price_list
        columns = max(map(len, price_lists), default=0)
        table = np.full((len(price_lists), columns), UNAFFORDABLE)
        for row, prices in zip(table, price_lists, strict=True):
            row[: len(prices)] = prices
        return table

    def find(self, state: MarketState, bid: Bid) -> DeviceDeal | None:
        """Return FIND_ALLOC: the deal with the greatest payoff above 0, None if there is none.

        The paper takes the cheapest allocation, as if all ended at the same time; a slower but
        cheaper one would then always win, so ours weighs what it costs against what it yields.
        """
        if state.total < bid.gang:
            return None
        if bid.gang == 1:
            return self._best_device(state, bid)
        best = self._together(state, bid)
        for deal in self._spread(state, bid, best.payoff if best else 0.0):
            if best is None or deal.payoff > best.payoff:
                best = deal
        return best

    def one_device(self, state: MarketState, bid: Bid, accelerator: int) -> DeviceDeal:
        """Return the deal for the cheapest device of an accelerator."""
        least, cell = state.cheapest[accelerator]
        return DeviceDeal(((cell, 1),), bid.together[accelerator], least)

    def _best_device(self, state: MarketState, bid: Bid) -> DeviceDeal | None:
        offered = range(len(self.cells.ranges))
        deals = [self.one_device(state, bid, accelerator) for accelerator in offered]
        best = max(deals, key=lambda deal: deal.payoff)
        return best if best.payoff > 0.0 else None

    def _together(self, state: MarketState, bid: Bid) -> DeviceDeal | None:
        """Return the best deal for which the gang stays on one node (line 24)."""
        free, price, gang = state.free, state.price, bid.gang
        best: DeviceDeal | None = None
        for (first, last), worth in zip(self.cells.ranges, bid.together, strict=False):
            room = [(price[c], c) for c in range(first, last) if free[c] >= gang]
            if room and worth > 0.0:
                least, cell = min(room)
                best = _better(best, DeviceDeal(((cell, gang),), worth, gang * least))
        if self.mixed:
            for cells in self.cells.mixed_nodes:
                for allowed in self._prefixes(bid.together):
                    order = sorted(
                        (price[c], c) for c in cells if self.cells.accelerator[c] in allowed
                    )
                    deal = self._fill(state, bid, bid.together, [c for _, c in order])
                    best = _better(best, deal)
        return best

    def _spread(self, state: MarketState, bid: Bid, enough: float) -> list[DeviceDeal]:
        """Return deals on several nodes (line 25): the cheapest, and those on fewest nodes."""
        free, price, accelerator = state.free, state.price, self.cells.accelerator
        deals = []
        for allowed in self._prefixes(bid.spread):
            cells = [c for c, left in enumerate(free) if left and accelerator[c] in allowed]
            if not cells:
                continue
            # No deal here can pay better than the best member at the least price on two nodes.
            most = max(bid.spread[k] for k in allowed) * (1.0 - self.communication / 2.0)
            if most - bid.gang * min(price[c] for c in cells) <= enough:
                continue
            cheap = nsmallest(bid.gang, cells, key=lambda c: (price[c], c))
            few = nsmallest(bid.gang, cells, key=lambda c: (-free[c], price[c], c))
            for order in (cheap, few):
                deal = self._fill(state, bid, bid.spread, order)
                if deal is not None:
                    deals.append(deal)
        return deals

    def _prefixes(self, worth: Sequence[float]) -> list[tuple[int, ...]]:
        """Return the sets of accelerators to choose from: all as fast as one, or one alone."""
        order = sorted((k for k, u in enumerate(worth) if u > 0.0), key=lambda k: -worth[k])
        if not self.mixed:
            return [(k,) for k in order]
        return [tuple(order[: i + 1]) for i in range(len(order))]

    def _fill(
        self, state: MarketState, bid: Bid, worth: Sequence[float], order: Iterable[int]
    ) -> DeviceDeal | None:
        """Take devices of the cells in this order until the gang is whole."""
        left, take, cost = bid.gang, [], 0.0
        for cell in order:
            count = min(left, state.free[cell])
            if count:
                take.append((cell, count))
                cost += count * state.price[cell]
                left -= count
            if not left:
                break
        if left:
            return None
        # The slowest member sets the pace (Eq. 1b).
        utility = min(worth[self.cells.accelerator[cell]] for cell, _ in take)
        nodes = len({self.cells.node[cell] for cell, _ in take})
        return DeviceDeal(tuple(take), utility, cost + self.communication_cost(utility, nodes))

    def communication_cost(self, utility: float, nodes: int) -> float:
        """Return the cost of communication across nodes (line 27).

        In a ring of n nodes each sends (n - 1)/n of the model across the network per step.
        """
        return self.communication * utility * (1.0 - 1.0 / nodes)


def _better(best: DeviceDeal | None, deal: DeviceDeal | None) -> DeviceDeal | None:
    if deal is None or deal.payoff <= (best.payoff if best else 0.0):
        return best
    return deal
