"""Selects further copies of jobs and their nodes: HadarE's forking (§V-A)."""

from collections.abc import Mapping

import numpy as np

from fairlead.mechanisms.hadar.auction import Auction
from fairlead.mechanisms.hadar.devices import Devices
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.snapshot import Snapshot


def fork(
    snap: Snapshot, auction: Auction, first: Mapping[int, Devices], most: Mapping[int, int]
) -> dict[int, list[Devices]]:
    """Return job → its copies' devices: the first one's and those that idle nodes can take.

    One after another, the copy is added that is worth most per device: the utility that the
    job gains by the speed of one more node, less the restart that forking costs a running job.
    A copy is a whole gang on one node, at most one on the devices of one accelerator there, and
    ``most`` of each job; a gang spread over nodes is not forked.
    """
    running = {row: [devices] for row, devices in first.items()}
    taken = {device for devices in first.values() for device in devices}
    free = [[d for d in devices if d not in taken] for devices in auction.cells.devices]
    forked = {row: devices for row, devices in first.items() if most[row] > 1}
    offers = _CopyOffers(snap, auction, forked)
    while any(free) and forked:
        best = offers.best([len(here) for here in free])
        if best is None:
            break
        row, cell = best
        gang = auction.worth.gang[row]
        running[row].append(tuple(free[cell][:gang]))
        del free[cell][:gang]
        offers.add(row, cell, full=len(running[row]) >= most[row])
    return running


class _CopyOffers:
    """Rows × cells → what one more copy would be worth per device."""

    def __init__(self, snap: Snapshot, auction: Auction, first: Mapping[int, Devices]) -> None:
        self._auction = auction
        self._accelerator = np.array(auction.cells.accelerator, dtype=np.int64)
        self._node = np.array(auction.cells.node, dtype=np.int64)
        self._gang = snap.gang
        n = len(snap.job)
        self._speed: FloatArray = np.zeros((n, 1))
        """rows → speed of the copies so far"""
        self._utility: FloatArray = np.zeros((n, 1))
        """rows → utility of the copies so far"""
        self._may: BoolArray = np.zeros((n, len(self._accelerator)), dtype=bool)
        """rows × cells → the job may have a copy there"""
        accelerator_of, node_of = snap.cluster.accelerator_of, snap.cluster.node_of
        for row, devices in first.items():
            accelerators = accelerator_of[list(devices)]
            nodes = set(node_of[list(devices)].tolist())
            if len(nodes) > 1:
                continue
            stays = auction.held.get(row) == devices
            self._speed[row] = auction.worth.speed[row, accelerators].min()
            self._utility[row] = auction.worth.utility(
                row, accelerators, one_node=True, stays=stays
            )
            here = (self._node == nodes.pop()) & np.isin(self._accelerator, accelerators)
            self._may[row] = (auction.worth.speed[row, self._accelerator] > 0) & ~here

    def best(self, free: list[int]) -> tuple[int, int] | None:
        """Return the row and cell of the copy worth most, None if none is worth anything."""
        speed = self._auction.worth.speed
        gain = self._auction.worth.at_speed(self._speed + speed) - self._utility
        per_device = (gain / self._gang[:, None])[:, self._accelerator]
        fits = self._may & (np.array(free) >= self._gang[:, None])
        per_device[~fits] = 0.0
        at = int(per_device.argmax())
        if per_device.ravel()[at] <= 0.0:
            return None
        row, cell = divmod(at, len(self._accelerator))
        return row, cell

    def add(self, row: int, cell: int, *, full: bool) -> None:
        """Note that the job has a copy there now."""
        worth = self._auction.worth
        self._speed[row] += worth.speed[row, self._accelerator[cell]]
        self._utility[row] = worth.at_speed(self._speed)[row]
        self._may[row, cell] = False
        if full:
            self._may[row] = False
