"""Whole devices for virtual tenants, so that none falls behind by more than a gang.

The paper rounds ideal + deviation and leaves open the case in which that exceeds the capacity
(OEF §4.3). Here devices are given one gang at a time, to the virtual tenant that would first
fall behind by more than its gang. With gangs of one device this is the chairman assignment: the
bound holds for any steady allocation. docs/design/oef-placement.md has the argument and its
limits.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

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
        heap: list[Key] = []
        for i, j in np.argwhere(self.ideal > 0).tolist():
            self._offer(heap, i, j)
        while heap:
            i, j = heapq.heappop(heap)[-2:]
            if self._give(i, j):
                self._offer(heap, i, j)

    def fill(self, runs: FloatArray, first: Sequence[float]) -> None:
        """Let waiting jobs run ahead of their tenants' shares on devices that are still free.

        ``runs`` is virtual tenants × accelerators → above 0 where it can run. Those with the
        least of ``first`` come first, then those least ahead.
        """
        if not any(self.free):
            return
        heap: list[tuple[float, float, int, int]] = []
        for i, j in np.argwhere((runs > 0) & (np.array(self.free) > 0)).tolist():
            heap.append((first[i], -float(self.due[i, j]), i, j))
        heapq.heapify(heap)
        while heap:
            rank, _, i, j = heapq.heappop(heap)
            if self._give(i, j):
                heapq.heappush(heap, (rank, -float(self.due[i, j]), i, j))

    def _offer(self, heap: list[Key], i: int, j: int) -> None:
        due, ideal, gang = float(self.due[i, j]), float(self.ideal[i, j]), self.gang[i]
        if gang > self.free[j] or not (due > _TINY or self.early[j]):
            return
        left = max(float(np.floor((gang - due) / ideal + _TINY)), -1.0)
        missed = -(float(self.missed[i, j]) + due) / ideal if left < 0 else 0.0
        moves = bool(self.here[i, j] == 0)
        heapq.heappush(heap, (left, missed, -gang, moves, i, j))

    def _give(self, i: int, j: int) -> bool:
        """Start the next job of a virtual tenant on an accelerator, if there is one and room."""
        gang, waiting = self.gang[i], self.waiting[i]
        if not waiting or gang > self.free[j]:
            return False
        self.picked.append((i, waiting.pop(), j))
        self.free[j] -= gang
        self.due[i, j] -= gang
        return True


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

    def fits(part: float) -> bool:
        owed = np.where(dev > 0, part * dev, dev) + by_then - gang
        gangs = np.maximum(np.ceil(owed / gang - _TINY), 0.0) * gang
        need = np.zeros(_ROUNDS_AHEAD)
        for g in np.unique(gang).tolist():
            # Smaller gangs together take whole places of the next larger size.
            need = np.ceil(need / g - _TINY) * g + gangs[:, gang == g].sum(axis=1)
        return bool((need <= capacity * rounds[:, 0] + _TINY).all())

    if fits(1.0):
        return dev
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return np.where(dev > 0, low * dev, dev)
