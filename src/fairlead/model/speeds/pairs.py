"""Speeds of packed pairs as dense arrays."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.speeds.key import Consolidation, SpeedKey


class PairSpeeds:
    """Speed of each workload of a table beside each other workload on the same devices."""

    def __init__(
        self,
        steps_per_s: Mapping[SpeedKey, float],
        workloads: Sequence[str],
        accelerators: Sequence[str],
        *,
        has_gang_speeds: bool,
    ) -> None:
        self._has_gang_speeds = has_gang_speeds
        self.index = {workload: i for i, workload in enumerate(workloads)}
        self._measured: dict[tuple[int, Consolidation], FloatArray] = {}
        column = {name: j for j, name in enumerate(accelerators)}
        shape = (len(self.index), len(self.index), len(accelerators))
        for key, speed in steps_per_s.items():
            if key.partner is None or key.accelerator not in column:
                continue
            of = (key.gang, key.placement)
            if of not in self._measured:
                self._measured[of] = np.full(shape, np.nan)
            if key.partner in self.index:
                place = self.index[key.workload], self.index[key.partner], column[key.accelerator]
                self._measured[of][place] = speed
        self._missing = np.full(shape, np.nan)
        self._blocks: dict[tuple[int, Consolidation], FloatArray] = {}

    def block(self, gang: int, placement: Consolidation) -> FloatArray:
        """Return workloads × partners × accelerators → steps per second of the workload.

        As for a job alone, an unmeasured spread pair is as fast as the consolidated one, and a
        table without gangs above 1 scales by the gang. Other unmeasured pairs have speed 0, and
        so has the last row and column, which stands for workloads that the table lacks.
        """
        block = self._blocks.get((gang, placement))
        if block is None:
            block = self._measured.get((gang, placement), self._missing)
            if placement == "spread":
                consolidated = self._measured.get((gang, "consolidated"), self._missing)
                block = np.where(np.isnan(block), consolidated, block)
            if gang > 1 and not self._has_gang_speeds:
                single = gang * self._measured.get((1, "consolidated"), self._missing)
                block = np.where(np.isnan(block), single, block)
            block = np.pad(np.nan_to_num(block, nan=0.0), ((0, 1), (0, 1), (0, 0)))
            self._blocks[gang, placement] = block
        return block
