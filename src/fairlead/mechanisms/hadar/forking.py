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
    if not any(free) or not forked:
        return running
    offers = _CopyOffers(snap, auction, forked)
    while any(free):
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
        self._gang = snap.gang
        n = len(snap.job)
        self._speed: FloatArray = np.zeros((n, 1))
        """rows → speed of the copies so far"""
        self._utility: FloatArray = np.zeros((n, 1))
        """rows → utility of the copies so far"""
        self._may: BoolArray = np.zeros((n, len(self._accelerator)), dtype=bool)
        """rows × cells → the job may have a copy there"""
        jobs = np.fromiter(first, dtype=np.int64)
        moves = np.array([auction.held.get(row) != devices for row, devices in first.items()])
        count = np.array([len(devices) for devices in first.values()])
        device = np.array([one for devices in first.values() for one in devices])
        begin, row = count.cumsum() - count, jobs.repeat(count)
        # The slowest device of a gang sets its pace.
        accelerator, node = snap.cluster.accelerator_of[device], snap.cluster.node_of[device]
        speed, together = auction.worth.speed, auction.worth.together
        utility = together[moves.astype(np.int64).repeat(count), row, accelerator]
        self._speed[jobs, 0] = np.minimum.reduceat(speed[row, accelerator], begin)
        self._utility[jobs, 0] = np.minimum.reduceat(utility, begin)
        whole = jobs[np.minimum.reduceat(node, begin) == np.maximum.reduceat(node, begin)]
        self._may[whole] = speed[whole][:, self._accelerator] > 0
        self._may[row, auction.cells.cell_of(device)] = False

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
