"""A water-filling between two stages: stopped classes and the remaining resources."""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import FillingStage
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.stage import FlexibleClasses

# Prices of earlier stages must outweigh a later stage's, to keep its frozen classes in place.
_PRICE_SCALE = 1e3
_MAX_TIE_CLASSES = 1000


class FillingProgress:
    """The classes frozen so far, and those of them that may still move."""

    def __init__(self, table: ClassTable, count: FloatArray, capacity: FloatArray) -> None:
        self.table, self.count, self.capacity = table, count, capacity
        self.share = np.zeros_like(table.gain)
        self.level = np.zeros(len(count))
        self.free = count > 0
        self.usable = capacity > 0
        self.flexible = np.zeros(0, np.int64)  # frozen classes whose shares are not settled
        self.stages: list[FillingStage] = []

    def room(self) -> FloatArray:
        """Return what the frozen classes leave of the resources."""
        if not self.stages:
            return self.capacity
        held = (self.count * self.table.size * ~self.free)[:, None]
        left: FloatArray = np.maximum(self.capacity - (held * self.share).sum(axis=0), 0.0)
        return left

    def held(self) -> FlexibleClasses:
        """Return the frozen classes that may yet move."""
        rows_held, table = self.flexible, self.table
        count, size = self.count[rows_held], table.size[rows_held]
        used = ((count * size)[:, None] * self.share[rows_held]).sum(axis=0)
        return FlexibleClasses(
            table.gain[rows_held], table.cost[rows_held], size, count, self.level[rows_held], used
        )

    def note(self, t: float, prices: FloatArray, frozen: BoolArray, level: FloatArray) -> None:
        """Record a stage that froze some classes at these levels, its prices after earlier ones.

        ``frozen`` and ``level`` are of all classes; only the frozen ones' levels count.
        """
        self.level = np.where(frozen, level, self.level)
        self.free = self.free & ~frozen
        if self.stages and self.stages[-1].prices.any():
            earlier = self.stages[-1].prices
            weight = _PRICE_SCALE * max(float(prices.max()), 1e-300) / float(earlier.max())
            prices = prices + weight * earlier if prices.any() else earlier
        self.stages.append(FillingStage(t, prices, frozen))

    def freeze_stage(self, stage: FillingStage, index: IntArray, cap: FloatArray) -> None:
        """Record a stage of the classes ``index``, each frozen one standing at min(t, cap)."""
        frozen = np.zeros(len(self.count), bool)
        frozen[index[stage.frozen]] = True
        level = np.zeros(len(self.count))
        level[index] = np.minimum(stage.t, cap)
        self.note(stage.t, stage.prices, frozen, level)

    def settle(self) -> None:
        """Apply the tie rule to all classes that may move, now that every level is known."""
        if not 0 < len(self.flexible) <= _MAX_TIE_CLASSES:
            return
        rows_held, held = self.flexible, self.held()
        program = StageProgram(self.room() + held.used)
        program.add(held.gain, held.size)
        total = program.least_cost(held.count, held.level, held.cost).total
        self.share[rows_held] = total / held.count[:, None]
