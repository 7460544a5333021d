"""The last table of options, kept while the same profiles have jobs.

Options follow from profiles: jobs that come or go mostly change the numbers of members only.
"""

from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies._packing.table import (
    UnitRules,
    UnitTable,
    first_of_profiles,
    unit_table,
)
from fairlead.policies.rules.quotas import any_quota
from fairlead.solve.classes import Classes


class KeptTable:
    """Returns what ``unit_table`` does, for classes that differ by profile alone."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._table: UnitTable | None = None
        self._speeds: SpeedTable | None = None
        self._class_of: IntArray = np.zeros(0, dtype=np.int64)
        """profiles → class"""
        self._first: IntArray = np.zeros(0, dtype=np.int64)
        """classes → place of its first job among the first jobs of all profiles"""

    def table(self, snap: Snapshot, distinct: FloatArray, rules: UnitRules) -> UnitTable:
        """Return the table; ``distinct`` is profiles → what else distinguishes its jobs."""
        if any_quota(snap) or snap.pairs:
            return unit_table(snap, distinct[snap.profile], rules)
        rows = first_of_profiles(snap)
        profiles = snap.profiles
        memory = b"" if profiles.memory_gib is None else profiles.memory_gib.tobytes()
        key = (
            *(rules, snap.profile[rows].tobytes(), profiles.content, distinct.tobytes()),
            *(snap.capacity.tobytes(), snap.devices.tobytes(), memory, tuple(profiles.workload)),
            *(profiles.tenant.tobytes(), snap.tenants, snap.cluster),
        )
        same = key == self._key and snap.speeds is self._speeds
        if self._table is not None and same:
            index = self._class_of[snap.profile]
            count = np.bincount(index, minlength=len(self._first))
            # Two of one class can be a pair.
            if not rules.packed or np.array_equal(count > 1, self._table.classes.count > 1):
                classes = Classes(index, rows[self._first], count)
                self._table = replace(self._table, classes=classes)
                return self._table
        self._key, self._speeds = key, snap.speeds
        self._table = unit_table(snap, distinct[snap.profile], rules)
        classes = self._table.classes
        self._class_of = np.zeros(len(profiles.gang), dtype=np.int64)
        self._class_of[snap.profile[rows]] = classes.index_of_member[rows]
        self._first = np.searchsorted(rows, classes.representative)
        return self._table
