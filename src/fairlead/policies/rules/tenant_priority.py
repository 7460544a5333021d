"""Priorities inside tenants: a job takes time from lower jobs of its tenant, never from others."""

from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import accelerator_columns

_NOTHING = 1e-9


def with_tenant_priorities(snap: Snapshot, allocation: Allocation) -> Allocation:
    """Return the allocation in which jobs of higher priority come first inside their tenant.

    A job without all the time takes devices from jobs of its tenant with a lower priority, the
    lowest first, on the accelerators where it runs fastest. The devices of every tenant stay the
    same on every accelerator, so other tenants neither gain nor lose. Time that jobs share in
    packed units stays as it is. Returns the same object if nothing changes.
    """
    if allocation.rows != "jobs" or allocation.measure != "time":
        return allocation
    if allocation.columns != accelerator_columns(len(snap.capacity)):
        return allocation
    if snap.priority is snap.precedence:
        return allocation
    ranked = ((snap.priority != snap.precedence) & (snap.priority != 0)).nonzero()[0]
    tenants = np.unique(snap.tenant[ranked])
    if not len(tenants):
        return allocation
    exchange = _Exchange(snap, allocation)
    for tenant in tenants.tolist():
        exchange.within(np.flatnonzero(snap.tenant == tenant))
    if not exchange.moved:
        return allocation
    share = allocation.share.copy()
    share[exchange.alone] = exchange.share[exchange.row]
    speed = None
    if allocation.speed is not None:
        change = exchange.share - exchange.before
        speed = allocation.speed + (snap.speed * change).sum(axis=1)
    return replace(allocation, share=share, speed=speed)


class _Exchange:
    """The time of jobs that run alone, while it moves between jobs of one tenant."""

    def __init__(self, snap: Snapshot, allocation: Allocation) -> None:
        self._snap = snap
        self.moved = False
        members = allocation.members
        self.alone: IntArray = np.flatnonzero((members[:, 1:] < 0).all(axis=1))
        """rows of the allocation with one job"""
        self.row: IntArray = snap.job.searchsorted(members[self.alone, 0])
        """their rows in the snapshot"""
        self.share: FloatArray = np.zeros(snap.speed.shape)
        self.share[self.row] = allocation.share[self.alone]
        self.before = self.share.copy()
        time = np.zeros(len(snap.job))
        for column in members.T:
            inside = column >= 0
            at = snap.job.searchsorted(column[inside])
            np.add.at(time, at, allocation.share[inside].sum(axis=1))
        self._idle: FloatArray = np.maximum(1.0 - time, 0.0)
        """jobs → time in which it does not run"""
        self._gang = np.broadcast_to(snap.gang_on, snap.speed.shape)
        self._may: BoolArray = (snap.speed > 0) & (self._gang <= snap.capacity)
        has_row = np.zeros(len(snap.job), dtype=bool)
        has_row[self.row] = True
        self._may &= has_row[:, None]

    def within(self, rows: IntArray) -> None:
        """Move time of one tenant to its jobs of higher priority."""
        priority = self._snap.priority
        highest_first = rows[np.lexsort((rows, -priority[rows]))]
        for taker in highest_first.tolist():
            lower = highest_first[priority[highest_first] < priority[taker]][::-1]
            if self._idle[taker] > _NOTHING and len(lower):
                self._take(taker, lower)

    def _take(self, taker: int, lower: IntArray) -> None:
        speed = self._snap.speed[taker]
        for column in np.argsort(-speed, kind="stable").tolist():
            if not self._may[taker, column]:
                continue
            for giver in lower[self.share[lower, column] > _NOTHING].tolist():
                devices = self.share[giver, column] * self._gang[giver, column]
                time = min(self._idle[taker], devices / self._gang[taker, column])
                if time <= _NOTHING:
                    break
                freed = time * self._gang[taker, column] / self._gang[giver, column]
                self.share[taker, column] += time
                self.share[giver, column] = max(self.share[giver, column] - freed, 0.0)
                self._idle[taker] -= time
                self._idle[giver] += freed
                self.moved = True
