"""Which units run this round: a choice of rows for columns, no row twice, gangs whole."""

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from fairlead.mechanisms.entries import Entries
from fairlead.mechanisms.exchange import Exchange
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


@dataclass(slots=True)
class Choice:
    """A round's choice under way: what is free, who has been taken, who wants which column."""

    gang: IntArray | None
    """rows, or rows × columns where these differ → devices needed at once; None: always one"""
    free: list[int]
    """columns → devices left"""
    taken: list[bool]
    """rows → runs already, or must not"""
    wanted: IntArray
    """rows → column chosen, -1 for none"""

    @classmethod
    def of(cls, gang: IntArray, free: list[int], taken: list[bool] | None = None) -> "Choice":
        """Return a choice in which nothing is chosen yet; ``gang`` is that of the fields."""
        n = len(gang)
        return cls(gang, free, taken or [False] * n, np.full(n, -1, dtype=np.int64))

    @classmethod
    def for_jobs(
        cls, snap: Snapshot, free: list[int], taken: list[bool] | None = None
    ) -> "Choice":
        """Return a choice among a snapshot's jobs in which nothing is chosen yet."""
        n = len(snap.job)
        profiles = snap.profiles
        gang = None if profiles.single else snap.gang if profiles.gangs is None else snap.gang_on
        return cls(gang, free, taken or [False] * n, np.full(n, -1, dtype=np.int64))

    def pick(self, row: IntArray, column: IntArray) -> int:
        """Go through entries in the order given, take each one that fits; return how many.

        This is Gavel's Algorithm 1: an entry is passed over when its row has been taken already
        (a job runs once, line 9) or when fewer devices of its column are free than its gang
        needs (line 7).
        """
        free, taken = self.free, self.taken
        rows: list[int] = []
        columns: list[int] = []
        gang = repeat(1) if self.gang is None else self._needs(row, column).tolist()
        for r, c, g in zip(row.tolist(), column.tolist(), gang, strict=False):
            if free[c] >= g and not taken[r]:
                taken[r] = True
                free[c] -= g
                rows.append(r)
                columns.append(c)
        self.wanted[rows] = columns
        return len(rows)

    def assign(self, entries: Entries) -> None:
        """Take entries by Algorithm 1 in the order of their weights, then use what is left free.

        If devices stay free while rows that want others wait, rows of one device are exchanged
        so that these can run, in the way that adds most weight.
        """
        entries = entries.heaviest_first()
        count = self.pick(entries.row, entries.column)
        if len(self.free) == 1 or count == len(entries.row) or not any(self.free):
            return
        waits = self.wanted < 0
        largest = self.gang
        if largest is not None:
            if largest.ndim > 1:
                largest = largest.max(axis=1)
            waits &= largest == 1
        if not np.count_nonzero(waits[entries.row]):
            return
        exchange = Exchange(entries, largest, self.wanted, self.free)
        if exchange.improve():
            self.wanted = exchange.assignment(self.wanted)
            runs = (self.wanted >= 0).tolist()
            for r in set(entries.row.tolist()):
                self.taken[r] = runs[r]

    def _needs(self, row: IntArray, column: IntArray) -> IntArray:
        """Return entries → devices needed at once."""
        assert self.gang is not None
        needs: IntArray = self.gang[row] if self.gang.ndim == 1 else self.gang[row, column]
        return needs

    def fill(self, speed: FloatArray, owed: FloatArray) -> None:
        """Let rows not taken yet use what is still free: first those least ahead of their share.

        Of rows that are owed alike, those that run relatively best there come first.
        """
        if all(self.taken) or not any(self.free):
            return
        waiting = (~np.array(self.taken, dtype=bool)).nonzero()[0]
        its_speed = speed[waiting]
        row, column = ((its_speed > 0) & (np.array(self.free) > 0)).nonzero()
        relative = its_speed[row, column] / its_speed.max(axis=1)[row]
        row = waiting[row]
        order = np.lexsort((row, -relative, -owed[row, column]))
        self.pick(row[order], column[order])
