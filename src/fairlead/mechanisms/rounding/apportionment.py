"""Whole devices for virtual tenants, so that none falls behind by more than a gang.

The paper rounds ideal + deviation and leaves open the case in which that exceeds the capacity
(OEF §4.3). Here devices are given one gang at a time, to the virtual tenant that would first
fall behind by more than its gang. With gangs of one device this is the chairman assignment: the
bound holds for any steady allocation. docs/design/oef-placement.md has the argument and its
limits.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray

_TINY = 1e-9
_ROUNDS_AHEAD = 40
"""rounds over which debts are checked against the capacity"""
_HALVINGS = 8

Key = tuple[float, float, int, bool, int, int]


@dataclass(slots=True)
class Apportionment:
    """A round's choice under way."""

    due: FloatArray
    """virtual tenants × accelerators → devices owed by the round's end if it gets none"""
    ideal: FloatArray
    gang: Sequence[int]
    """virtual tenants → gang of its jobs"""
    missed: FloatArray
    """virtual tenants × accelerators → devices × rounds lately owed and never given"""
    early: Sequence[bool]
    """accelerators → gangs differ, so that a tenant without a debt may run ahead"""
    here: BoolArray
    """virtual tenants × accelerators → whether it holds devices now"""
    waiting: Sequence[list[int]]
    """virtual tenants → rows of its jobs that do not run yet, the first one last"""
    free: list[int]
    """accelerators → devices left"""
    picked: list[tuple[int, int, int]] = field(default_factory=list)
    """(virtual tenant, row, accelerator) of those that run"""

    def serve(self) -> None:
        """Give gangs to those with a share, the most urgent first, while devices are left.

        The most urgent can wait for the fewest rounds until it is behind by more than its gang. Of
        those that cannot wait at all the one that lately missed most of its share comes first, of
        the others the larger gang. Where gangs differ, small ones run ahead of their shares to
        make room for large ones later; where all are alike only those owed something run.
        """
        if any(self.early):
            self._serve_ahead()
        else:
            self._serve_owed()

    def _serve_owed(self) -> None:
        """Serve where only those owed something run.

        A virtual tenant's offers for its gangs, one after the other, are ever less urgent. So all
        offers are sorted once.
        """
        gang = np.array(self.gang, dtype=np.int64)
        # Each is offered the gangs that it is owed, the last one perhaps only in part.
        offers = np.maximum(np.ceil((self.due - _TINY) / gang[:, None]), 0.0) * (self.ideal > 0)
        count = offers.ravel().astype(np.int64)
        cell = np.arange(len(count)).repeat(count)
        i, j = np.divmod(cell, len(self.free))
        size = gang[i]
        turn = np.arange(len(cell)) - (count.cumsum() - count)[cell]
        keys = self._keys(cell, self.due.take(cell) - turn * size, size)
        order = np.lexsort(keys[::-1])
        columns = [column[order].tolist() for column in (cell, i, j, size)]
        free, waiting, due = self.free, self.waiting, self.due.ravel().tolist()
        for at, row, accelerator, devices in zip(*columns, strict=True):
            rows = waiting[row]
            if rows and devices <= free[accelerator]:
                self.picked.append((row, rows.pop(), accelerator))
                free[accelerator] -= devices
                due[at] -= devices
        self.due[:] = np.array(due).reshape(self.due.shape)

    def _serve_ahead(self) -> None:
        """Serve where small gangs may run ahead of their shares."""
        gang = np.array(self.gang, dtype=np.int64)
        cell = self._may_run(gang).ravel().nonzero()[0]
        i, j = np.divmod(cell, len(self.free))
        keys = (*self._keys(cell, self.due.take(cell), gang[i]), i, j)
        heap: list[Key] = list(zip(*(key.tolist() for key in keys), strict=True))
        heapq.heapify(heap)
        due, free, waiting = self.due.tolist(), self.free, self.waiting
        while heap:
            _, _, size, moves, row, column = heapq.heappop(heap)
            rows = waiting[row]
            if not rows or -size > free[column]:
                continue
            self.picked.append((row, rows.pop(), column))
            free[column] += size
            due[row][column] += size
            owed: float = due[row][column]
            if not rows or -size > free[column] or not (owed > _TINY or self.early[column]):
                continue
            share = float(self.ideal[row, column])
            left = max(math.floor((-size - owed) / share + _TINY), -1)
            missed = -(float(self.missed[row, column]) + owed) / share if left < 0 else 0.0
            heapq.heappush(heap, (left, missed, size, moves, row, column))
        self.due[:] = np.array(due).reshape(self.due.shape)

    def _may_run(self, gang: IntArray) -> BoolArray:
        """Return virtual tenants × accelerators → whether its next job may run there by share."""
        may: BoolArray = (self.due > _TINY) | np.array(self.early, dtype=bool)
        may &= (self.ideal > 0) & (gang[:, None] <= np.array(self.free)) & self._waits()
        return may

    def _keys(
        self, cell: IntArray, due: FloatArray, gang: IntArray
    ) -> tuple[FloatArray, FloatArray, IntArray, BoolArray]:
        """Return the columns of the keys by which offers are ordered; equal ones by their cell.

        ``cell`` is the place of each in the flat tables, ``due`` the debt before it.
        """
        ideal = self.ideal.take(cell)
        left = np.maximum(np.floor((gang - due) / ideal + _TINY), -1.0)
        missed = np.where(left < 0, -(self.missed.take(cell) + due) / ideal, 0.0)
        return left, missed, -gang, ~self.here.take(cell)

    def fill(self, runs: FloatArray, first: Sequence[float]) -> None:
        """Let waiting jobs run ahead of their tenants' shares on devices that are still free.

        ``runs`` is virtual tenants × accelerators → above 0 where it can run. Those with the
        least of ``first`` come first, then those least ahead.
        """
        if not any(self.free) or not any(self.waiting):
            return
        i, j = ((runs > 0) & (np.array(self.free) > 0) & self._waits()).nonzero()
        ahead = (-self.due[i, j]).tolist()
        rank = [first[row] for row in i.tolist()]
        heap = list(zip(rank, ahead, i.tolist(), j.tolist(), strict=True))
        heapq.heapify(heap)
        while heap:
            place, _, row, column = heapq.heappop(heap)
            gang, rows = self.gang[row], self.waiting[row]
            if rows and gang <= self.free[column]:
                self.picked.append((row, rows.pop(), column))
                self.free[column] -= gang
                self.due[row, column] -= gang
                heapq.heappush(heap, (place, -float(self.due[row, column]), row, column))

    def _waits(self) -> BoolArray:
        """Return virtual tenants × 1 → whether some of its jobs do not run yet."""
        return np.array([bool(rows) for rows in self.waiting], dtype=bool)[:, None]


def payable_deviations(
    dev: FloatArray, ideal: FloatArray, gang: IntArray, capacity: IntArray
) -> FloatArray:
    """Return the deviations, those above 0 cut on accelerators that cannot pay them in time.

    After T more rounds a tenant may lack at most its gang, so the gangs due by then must fit
    into T rounds. All debts on an accelerator are cut in the same proportion.
    """
    kept = dev.copy()
    late = (dev > _TINY).any(axis=0) & ~_can_pay(dev, ideal, gang, capacity)
    for j in late.nonzero()[0].tolist():
        debt, share, count = dev[:, [j]], ideal[:, [j]], capacity[[j]]
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            part = np.where(debt > 0, middle * debt, debt)
            fits = _can_pay(part, share, gang, count).all()
            low, high = (middle, high) if fits else (low, middle)
        kept[:, j] = np.where(dev[:, j] > 0, low * dev[:, j], dev[:, j])
    return kept


def _can_pay(dev: FloatArray, ideal: FloatArray, gang: IntArray, capacity: IntArray) -> BoolArray:
    """Return accelerators → whether the gangs due by then fit into every number of rounds."""
    rounds = np.arange(1, _ROUNDS_AHEAD + 1)[:, None]
    # Virtual tenants are the last axis, the longest one, along which numpy is fast.
    by_then = rounds[:, :, None] * ideal.T.copy()
    owed = dev.T + by_then - gang
    gangs = np.maximum(np.ceil(owed / gang - _TINY), 0.0) * gang
    need = np.zeros((_ROUNDS_AHEAD, len(capacity)))
    for size in np.unique(gang).tolist():
        # Smaller gangs together take whole places of the next larger size.
        need = np.ceil(need / size - _TINY) * size + gangs[:, :, gang == size].sum(axis=2)
    fits: BoolArray = np.logical_and.reduce(need <= capacity * rounds + _TINY)
    return fits
