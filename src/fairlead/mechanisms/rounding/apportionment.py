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
    here: IntArray
    """virtual tenants × accelerators → devices it holds now"""
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
        i, j = self._may_run(gang).nonzero()
        room = np.array(self.free)[j] // gang[i]
        most = np.array([len(rows) for rows in self.waiting], dtype=np.int64)[i]
        most = np.minimum(np.minimum(most, room), np.ceil(self.due[i, j] / gang[i]) + 1.0)
        count = most.astype(np.int64)
        turn = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        i, j = np.repeat(i, count), np.repeat(j, count)
        due = self.due[i, j] - turn * gang[i]
        owed = due > _TINY
        i, j = i[owed], j[owed]
        keys = self._keys(i, j, due[owed], gang[i])
        order = np.lexsort(keys[::-1])
        served = [[0] * len(self.free) for _ in self.gang]
        free, waiting, picked, gangs = self.free, self.waiting, self.picked, self.gang
        left = sum(free)
        for row, column in zip(i[order].tolist(), j[order].tolist(), strict=True):
            rows, size = waiting[row], gangs[row]
            if rows and size <= free[column]:
                picked.append((row, rows.pop(), column))
                free[column] -= size
                served[row][column] += size
                left -= size
                if not left:
                    break
        self.due -= np.array(served, dtype=np.int64).reshape(self.due.shape)

    def _serve_ahead(self) -> None:
        """Serve where small gangs may run ahead of their shares."""
        gang = np.array(self.gang, dtype=np.int64)
        i, j = self._may_run(gang).nonzero()
        keys = self._keys(i, j, self.due[i, j], gang[i])
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
        self, i: IntArray, j: IntArray, due: FloatArray, gang: IntArray
    ) -> tuple[FloatArray | IntArray | BoolArray, ...]:
        """Return the columns of the keys by which offers are ordered; ``due`` is that of each."""
        ideal = self.ideal[i, j]
        left = np.maximum(np.floor((gang - due) / ideal + _TINY), -1.0)
        missed = np.where(left < 0, -(self.missed[i, j] + due) / ideal, 0.0)
        return left, missed, -gang, self.here[i, j] == 0, i, j

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
        return np.array([[len(rows) > 0] for rows in self.waiting], dtype=bool).reshape(-1, 1)


def payable_deviations(
    dev: FloatArray, ideal: FloatArray, gang: IntArray, capacity: IntArray
) -> FloatArray:
    """Return the deviations, those above 0 cut on accelerators that cannot pay them in time.

    After T more rounds a tenant may lack at most its gang, so the gangs due by then must fit
    into T rounds. All debts on an accelerator are cut in the same proportion.
    """
    kept = dev.copy()
    for j in range(dev.shape[1]):
        if (dev[:, j] > _TINY).any():
            kept[:, j] = _payable_on(dev[:, j], ideal[:, j], gang, float(capacity[j]))
    return kept


def _payable_on(dev: FloatArray, ideal: FloatArray, gang: IntArray, capacity: float) -> FloatArray:
    rounds = np.arange(1, _ROUNDS_AHEAD + 1)[:, None]
    by_then = rounds * ideal
    sizes = np.unique(gang).tolist()
    of_size = [slice(None) if len(sizes) == 1 else gang == g for g in sizes]

    def fits(part: float) -> bool:
        owed = np.where(dev > 0, part * dev, dev) + by_then - gang
        gangs = np.maximum(np.ceil(owed / gang - _TINY), 0.0) * gang
        need = np.zeros(_ROUNDS_AHEAD)
        for g, those in zip(sizes, of_size, strict=True):
            # Smaller gangs together take whole places of the next larger size.
            need = np.ceil(need / g - _TINY) * g + gangs[:, those].sum(axis=1)
        return bool((need <= capacity * rounds[:, 0] + _TINY).all())

    if fits(1.0):
        return dev
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return np.where(dev > 0, low * dev, dev)
