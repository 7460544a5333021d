"""Selects further copies of jobs and their nodes: HadarE's forking (§V-A)."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms.hadar.auction import Auction
from fairlead.mechanisms.hadar.bids import ALL
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
    offers = _CopyOffers(snap, auction, forked, [len(here) for here in free])
    for row, cell in offers.taken(most):
        gang = auction.worth.gang[row]
        running[row].append(tuple(free[cell][:gang]))
        del free[cell][:gang]
    return running


class _CopyOffers:
    """Rows × cells → what one more copy would be worth per device."""

    def __init__(
        self, snap: Snapshot, auction: Auction, first: Mapping[int, Devices], free: Sequence[int]
    ) -> None:
        """Offer copies of the jobs with these first ones; ``free``: cells → devices left."""
        self._worth, self._gang = auction.worth, snap.gang
        self._free = np.array(free, dtype=np.int64)
        self._accelerator = np.array(auction.cells.accelerator, dtype=np.int64)
        n = len(snap.job)
        self._speed: FloatArray = np.zeros((n, 1))
        """rows → speed of the copies so far"""
        self._utility: FloatArray = np.zeros((n, 1))
        """rows → utility of the copies so far"""
        self._may: BoolArray = np.zeros((n, len(free)), dtype=bool)
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
        self._next: FloatArray = np.empty_like(speed)
        """rows × accelerators → utility of the copies so far and one more there"""
        self._offer = np.empty(self._may.shape)

    def taken(self, most: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield the row and cell of each further copy, given the greatest number of each job."""
        if compiled is not None:
            yield from self._taken_in_c(most)
            return
        self._update(ALL)
        copies = dict.fromkeys(most, 1)
        while (best := self.best()) is not None:
            row, cell = best
            copies[row] += 1
            self.add(row, cell, full=copies[row] >= most[row])
            yield best

    def _taken_in_c(self, most: Mapping[int, int]) -> list[tuple[int, int]]:
        assert compiled is not None
        worth, limit = self._worth, np.ones(len(self._gang), dtype=np.int64)
        limit[np.fromiter(most, dtype=np.int64)] = np.fromiter(most.values(), dtype=np.int64)
        added = np.empty((int(self._free.sum()), 2), dtype=np.int64)
        count = compiled.fork_copies(
            *(worth.terms(), np.ascontiguousarray(worth.speed), self._gang, limit),
            *(self._accelerator, self._free.copy(), self._may.astype(np.int64)),
            *(self._speed, self._utility, added),
        )
        return [(row, cell) for row, cell in added[:count].tolist()]

    def best(self) -> tuple[int, int] | None:
        """Return the row and cell of the copy worth most, None if none is worth anything."""
        at = int(self._offer.argmax())
        row, cell = divmod(at, len(self._free))
        return (row, cell) if self._offer[row, cell] > 0.0 else None

    def add(self, row: int, cell: int, *, full: bool) -> None:
        """Note that the job has a copy there now; ``full``: it gets no more."""
        accelerator = self._accelerator[cell]
        self._speed[row] += self._worth.speed[row, accelerator]
        self._utility[row] = self._next[row, accelerator]
        self._free[cell] -= self._gang[row]
        self._may[row, cell] = False
        if full:
            self._may[row] = False
        self._update(slice(row, row + 1))
        self._offer[self._gang > self._free[cell], cell] = 0.0

    def _update(self, jobs: slice) -> None:
        """Compute what a further copy of these jobs is worth per device in each cell."""
        worth, gang = self._worth, self._gang[jobs, None]
        self._next[jobs] = worth.at_speed(self._speed[jobs] + worth.speed[jobs], jobs)
        per_device = (self._next[jobs] - self._utility[jobs]) / gang
        fits = self._may[jobs] & (self._free >= gang)
        self._offer[jobs] = np.where(fits, per_device.take(self._accelerator, axis=1), 0.0)
