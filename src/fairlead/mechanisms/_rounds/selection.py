"""Selects the rows that run this round: no row twice, whole gangs."""

from dataclasses import dataclass

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.exchange import AssignmentExchange
from fairlead.mechanisms._rounds.gang_exchange import make_room_for_gangs
from fairlead.mechanisms._rounds.knapsack import choose_by_knapsack
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.snapshot import Snapshot
from fairlead.placement import place_gangs

_NONE, _BUSY = -1, -2
_MIN_SPEED_UP = 1.02
"""least gain in speed for which a job moves to an idle device"""


@dataclass(slots=True)
class RoundSelection:
    """A round's selection in progress: free devices, and the column chosen for each row."""

    gang: IntArray | None
    """rows, or rows × columns where these differ → devices needed at once; None: always one"""
    free: list[int]
    """columns → devices left"""
    wanted: IntArray
    """rows → column chosen; -1 for none so far, -2 for one that runs already or must not"""

    @classmethod
    def of(cls, gang: IntArray, free: list[int]) -> "RoundSelection":
        """Return a selection without rows; ``gang`` is that of the fields."""
        return cls(gang, free, np.full(len(gang), _NONE))

    @classmethod
    def for_jobs(
        cls, snap: Snapshot, free: list[int], busy: BoolArray | None = None
    ) -> "RoundSelection":
        """Return a selection among a snapshot's jobs, busy ones left out."""
        profiles = snap.profiles
        gang = None if profiles.single else snap.gang if profiles.gangs is None else snap.gang_on
        if busy is None:
            return cls(gang, free, np.full(len(snap.job), _NONE))
        return cls(gang, free, np.where(busy, _BUSY, _NONE))

    @classmethod
    def for_waiting(cls, snap: Snapshot, idle: IntArray) -> "RoundSelection":
        """Return a selection among the jobs without devices, for the idle devices."""
        free = np.bincount(snap.cluster.accelerator_of[idle], minlength=len(snap.capacity))
        busy = np.zeros(len(snap.job) + 1, dtype=bool)
        busy[snap.holds] = True
        return cls.for_jobs(snap, free.tolist(), busy[:-1])

    def pick(self, row: IntArray, column: IntArray) -> int:
        """Go through entries in the order given, take each one that fits; return how many.

        This is Gavel's Algorithm 1: an entry is passed over when its row has been taken already
        (a job runs once, line 9) or when fewer devices of its column are free than its gang
        needs (line 7).
        """
        free, chosen = self.free, self.wanted.tolist()
        count = 0
        gang = [1] * len(row) if self.gang is None else self._needs(row, column).tolist()
        for r, c, g in zip(row.tolist(), column.tolist(), gang, strict=True):
            if free[c] >= g and chosen[r] == _NONE:
                chosen[r] = c
                free[c] -= g
                count += 1
        self.wanted[:] = chosen
        return count

    def assign(self, entries: CandidateEntries) -> None:
        """Take entries by Algorithm 1 in the order of their weights, then use the free devices.

        If devices stay free while rows that want others wait, rows of one device are exchanged
        so that these can run, in the way that adds most weight. Waiting gangs replace rows to
        which less is owed together.
        """
        self._assign_in_order(entries)
        if self.gang is None:
            return
        needs = self._needs(entries.row, entries.column)
        if make_room_for_gangs(entries, needs, self.free, self.wanted):
            entries = entries.by_falling_weight()
            self.pick(entries.row, entries.column)

    def assign_gangs(self, entries: CandidateEntries) -> None:
        """Take the entries that have the greatest weight together, counted for every device."""
        needs = self._needs(entries.row, entries.column)
        choose_by_knapsack(entries, needs, self.free, self.wanted)

    def _assign_in_order(self, entries: CandidateEntries) -> None:
        if min(self.free) <= 0:
            # Nor can rows be exchanged there: none has been taken for such a column.
            entries = entries.where((np.array(self.free) > 0)[entries.column])
        if compiled is not None:
            compiled.assign(*entries, self.gang, self.free, self.wanted)
            return
        if _BUSY in self.wanted:
            entries = entries.where((self.wanted == _NONE)[entries.row])
        entries = entries.by_falling_weight()
        count = self.pick(entries.row, entries.column)
        if len(self.free) == 1 or count == len(entries.row) or not any(self.free):
            return
        waits = self.wanted == _NONE
        fixed = None
        if self.gang is not None:
            fixed = (self.gang if self.gang.ndim == 1 else self.gang.max(axis=1)) > 1
            waits &= ~fixed
        if not np.count_nonzero(waits[entries.row]):
            return
        exchange = AssignmentExchange(entries, fixed, self.wanted.tolist(), self.free)
        if exchange.improve():
            for row, column in exchange.moved().items():
                self.wanted[row] = column

    def _needs(self, row: IntArray, column: IntArray) -> IntArray:
        """Return entries → devices needed at once."""
        assert self.gang is not None
        needs: IntArray = self.gang[row] if self.gang.ndim == 1 else self.gang[row, column]
        return needs

    def fill(self, speed: FloatArray, owed: FloatArray) -> None:
        """Give free devices to rows not taken yet: first to those least ahead of their share.

        Of rows that are owed alike, those that run relatively best there come first.
        """
        if not any(self.free):
            return
        if compiled is not None:
            compiled.fill(speed, owed, self.gang, self.free, self.wanted)
            return
        waiting = (self.wanted == _NONE).nonzero()[0]
        its_speed = speed[waiting]
        row, column = ((its_speed > 0) & (np.array(self.free) > 0)).nonzero()
        relative = its_speed[row, column] / its_speed.max(axis=1)[row]
        row = waiting[row]
        order = np.lexsort((row, -relative, -owed[row, column]))
        self.pick(row[order], column[order])

    def move_to_faster(self, speed: FloatArray) -> bool:
        """Move chosen rows to free devices on which they run faster; return whether any moved.

        The row that gains most goes first, each at most once; rows that gain little stay.
        """
        gang = np.ones(len(speed), dtype=np.int64) if self.gang is None else self.gang
        rows = (self.wanted >= 0).nonzero()[0]
        gang = gang[:, None] if gang.ndim == 1 else gang
        needs = np.broadcast_to(gang, speed.shape)[rows]
        now = speed[rows, self.wanted[rows]][:, None]
        gain = np.divide(speed[rows], now, out=np.zeros(needs.shape), where=now > 0)
        gain[(gain < _MIN_SPEED_UP) | (needs > np.array(self.free))] = 0.0
        row, column = gain.nonzero()
        order = np.lexsort((row, -gain[row, column]))
        moved: set[int] = set()
        for i, to in zip(row[order].tolist(), column[order].tolist(), strict=True):
            if i in moved or self.free[to] < needs[i, to]:
                continue
            at = int(self.wanted[rows[i]])
            self.free[at] += int(needs[i, at])
            self.free[to] -= int(needs[i, to])
            self.wanted[rows[i]] = to
            moved.add(i)
        return bool(moved)

    def placed(self, snap: Snapshot, idle: IntArray) -> Placements:
        """Return the jobs chosen, on these idle devices."""
        wanted = self.wanted
        rows = (wanted >= 0).nonzero()[0]
        if not len(rows):
            return NO_PLACEMENTS
        is_idle = np.zeros(len(snap.cluster.node_of), dtype=bool)
        is_idle[idle] = True
        return place_gangs(snap, is_idle, rows, wanted[rows])
