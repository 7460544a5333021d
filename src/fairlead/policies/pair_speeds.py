"""Speeds of packed workloads as arrays, read off a speeds table once."""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.speeds import Placement, SpeedTable


class PairSpeeds:
    """How fast each workload of a table runs with each other one on the same devices."""

    def __init__(self, table: SpeedTable, accelerators: tuple[str, ...]) -> None:
        self.table = table
        self.accelerators = accelerators
        self.index = {workload: i for i, workload in enumerate(table.workloads)}
        self._measured: dict[tuple[int, Placement], FloatArray] = {}
        column = {name: j for j, name in enumerate(accelerators)}
        shape = (len(self.index), len(self.index), len(accelerators))
        for key, speed in table.steps_per_s.items():
            if key.partner is None or key.accelerator not in column:
                continue
            kind = (key.gang, key.placement)
            if kind not in self._measured:
                self._measured[kind] = np.full(shape, np.nan)
            if key.partner in self.index:
                place = self.index[key.workload], self.index[key.partner], column[key.accelerator]
                self._measured[kind][place] = speed
        self._missing = np.full(shape, np.nan)
        self._whole: dict[tuple[int, Placement], FloatArray] = {}

    def block(self, gang: int, placement: Placement) -> FloatArray:
        """Return workloads × partners × accelerators → steps per second of the former.

        As for a job alone, what was not measured spread is as fast as consolidated, and a table
        without gangs above 1 scales by the gang; otherwise a pair that was not measured does not
        fit together.
        """
        found = self._whole.get((gang, placement))
        if found is None:
            found = self._measured.get((gang, placement), self._missing)
            if placement == "spread":
                consolidated = self._measured.get((gang, "consolidated"), self._missing)
                found = np.where(np.isnan(found), consolidated, found)
            if gang > 1 and not self.table.measures_gangs:
                single = gang * self._measured.get((1, "consolidated"), self._missing)
                found = np.where(np.isnan(found), single, found)
            found = np.nan_to_num(found, nan=0.0)
            self._whole[gang, placement] = found
        return found


class PairSpeedsCache:
    """Keeps the arrays of the last table asked for."""

    def __init__(self) -> None:
        self._kept: PairSpeeds | None = None

    def of(self, table: SpeedTable, accelerators: tuple[str, ...]) -> PairSpeeds:
        """Return the table's arrays, made only if it is not the last one."""
        kept = self._kept
        if kept is None or kept.table is not table or kept.accelerators != accelerators:
            self._kept = kept = PairSpeeds(table, accelerators)
        return kept
