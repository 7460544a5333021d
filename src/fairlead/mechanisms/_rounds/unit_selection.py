"""Selects the units that run this round where units may have jobs in common."""

from collections.abc import Iterable

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.gang_exchange import entries_to_replace
from fairlead.model.arrays import IntArray
from fairlead.model.plan import ABSENT

_MAX_TRIALS = 32
"""a guard; later rounds make up for the rest"""
_MIN_GAIN = 1e-9


class UnitSelection:
    """A round's choice under way: units for columns, no job twice, gangs whole.

    ``members`` is units × width → rows of jobs, ascending, then ABSENT; ``gang`` is entries →
    devices needed at once. Of entries with the same weight the one that serves more jobs comes
    first.
    """

    def __init__(
        self,
        members: IntArray,
        gang: IntArray,
        entries: CandidateEntries,
        free: list[int],
        n_jobs: int,
    ) -> None:
        size = (members >= 0).sum(axis=1)
        order = np.lexsort((-size[entries.row], -entries.weight))  # equal ones as they come
        self._entries = CandidateEntries(
            entries.row[order], entries.column[order], entries.weight[order]
        )
        self._gangs, self._units = gang[order], members
        self.free = free
        """columns → devices left"""
        self.unit_of = [ABSENT] * (n_jobs + 1)
        """rows of jobs → unit that it runs in; the last one is nobody's"""
        self._column: list[int] = self._entries.column.tolist()
        self._entry: dict[int, int] = {}
        """unit chosen → its entry"""
        self._in_columns: dict[tuple[int, ...], list[int]] = {}
        """columns → their entries, in the order of weights"""

    @property
    def wanted(self) -> dict[int, int]:
        """Units chosen → column, in the order of units."""
        return {unit: self._column[i] for unit, i in sorted(self._entry.items())}

    def assign(self) -> None:
        """Take entries in the order of their weights, then use the free devices."""
        if compiled is not None and not np.count_nonzero(self._gangs != 1):
            self._assign_singles()
            return
        self._unit: list[int] = self._entries.row.tolist()
        self._weight: list[float] = self._entries.weight.tolist()
        self._members: list[list[int]] = self._units[self._entries.row].tolist()
        self._gang: list[int] = self._gangs.tolist()
        self._pick()
        if any(self.free) and len(self._entry) < len(self._unit):
            self._improve()
        if self._gang and max(self._gang) > 1 and self._make_room_for_gangs():
            self._pick()

    def _assign_singles(self) -> None:
        """Do the same where every unit needs one device."""
        assert compiled is not None
        unit, column, weight = self._entries
        unit_of, entry_of = np.full(len(self.unit_of), ABSENT), np.full(len(self._units), ABSENT)
        compiled.assign_units(
            unit, column, weight, self._units[unit], self.free, unit_of, entry_of
        )
        self.unit_of = unit_of.tolist()
        chosen = (entry_of >= 0).nonzero()[0]
        self._entry = dict(zip(chosen.tolist(), entry_of[chosen].tolist(), strict=True))

    def _take(self, i: int) -> None:
        unit = self._unit[i]
        self._entry[unit] = i
        self.free[self._column[i]] -= self._gang[i]
        for row in self._members[i]:
            self.unit_of[row] = unit
        self.unit_of[-1] = ABSENT

    def _drop(self, i: int) -> None:
        del self._entry[self._unit[i]]
        self.free[self._column[i]] += self._gang[i]
        for row in self._members[i]:
            self.unit_of[row] = ABSENT

    def _pick(self) -> list[int]:
        """Take every entry that still fits, in the order of weights: Gavel's Algorithm 1."""
        free, column, gang, unit_of = self.free, self._column, self._gang, self.unit_of
        taken = []
        for i in self._in_free_columns():
            if free[column[i]] < gang[i]:
                continue
            for row in self._members[i]:
                if unit_of[row] >= 0:
                    break
            else:
                self._take(i)
                taken.append(i)
        return taken

    def _in_free_columns(self) -> list[int]:
        """Return the entries of columns with free devices, in the order of weights."""
        columns = tuple(c for c, devices in enumerate(self.free) if devices > 0)
        entries = self._in_columns.get(columns)
        if entries is None:
            entries = [i for i, c in enumerate(self._column) if c in columns]
            self._in_columns[columns] = entries
        return entries

    def _improve(self) -> None:
        """Let units run on free devices in place of those that hold their jobs, if that gains.

        A unit that makes room frees devices and partners for others, which counts.
        """
        trials = 0
        for i in range(len(self._unit)):
            if self.free[self._column[i]] < self._gang[i] or self._entry.get(self._unit[i]) == i:
                continue
            trials += 1
            self._exchange(i)
            if trials == _MAX_TRIALS or not any(self.free):
                return

    def _make_room_for_gangs(self) -> bool:
        """Run waiting gangs in place of units that count less together, as for jobs alone."""
        gang, weight, column = self._gang, self._weight, self._column
        larger = [i for i, size in enumerate(gang) if size > 1]
        moved = False
        for i in sorted(larger, key=lambda e: -weight[e] * gang[e]):
            if any(self.unit_of[row] >= 0 for row in self._members[i]):
                continue
            there = [entry for entry in self._entry.values() if column[entry] == column[i]]
            out = entries_to_replace(i, self.free[column[i]], there, gang, weight)
            if out is None:
                continue
            for entry in out:
                self._drop(entry)
            self._take(i)
            moved = True
        return moved

    def _exchange(self, i: int) -> None:
        out = {self.unit_of[row] for row in self._members[i]} - {ABSENT}
        dropped = [self._entry[unit] for unit in sorted(out)]
        for entry in dropped:
            self._drop(entry)
        self._take(i)
        taken = [i, *self._pick()]
        if self._total(taken) - self._total(dropped) > _MIN_GAIN:
            return
        for entry in taken:
            self._drop(entry)
        for entry in dropped:
            self._take(entry)

    def _total(self, entries: Iterable[int]) -> float:
        """Return the sum of weights, added up one by one as compiled code does."""
        total = 0.0
        for entry in entries:
            total += self._weight[entry]
        return total


def rows_of_units(packed: IntArray, job: IntArray) -> IntArray:
    """Return units × width → rows of jobs: the jobs alone first, then the packed units."""
    members = np.full((len(job) + len(packed), max(packed.shape[1], 1)), ABSENT, dtype=np.int64)
    members[: len(job), 0] = np.arange(len(job))
    row = np.searchsorted(job, packed)
    members[len(job) :] = np.where(packed < 0, ABSENT, row)
    return members
