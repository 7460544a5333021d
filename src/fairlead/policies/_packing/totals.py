"""Options and prices, shared by the policies whose objective is a total."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.kept_table import KeptTable
from fairlead.policies._packing.shares import as_job_shares, class_speed, unit_allocation
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.policies.base import mean_speed
from fairlead.solve.options.objectives import BestTimes
from fairlead.solve.options.problem import OptionProblem


@dataclass(frozen=True, slots=True, eq=False)
class JobOptions:
    """The options of a snapshot's jobs, levels being steps per second."""

    table: UnitTable
    problem: OptionProblem

    @property
    def speed(self) -> FloatArray:
        """options → steps per second of all its members."""
        return self.table.speed_first + self.table.speed_second

    def cost(self, usd_per_hour: FloatArray) -> FloatArray:
        """Return options → price of the devices for an hour; packed jobs pay once."""
        return self.table.size * usd_per_hour[self.table.resource]

    def allocation(self, snap: Snapshot, best: BestTimes, rules: UnitRules) -> Allocation:
        """Return the best times as shares of units."""
        return allocation_of(snap, self.table, best, rules)

    def class_speed(self, best: BestTimes) -> FloatArray:
        """Return classes → steps per second of each member."""
        return class_speed(self.table, best.time)


def allocation_of(
    snap: Snapshot, table: UnitTable, best: BestTimes, rules: UnitRules
) -> Allocation:
    """Return the best times of a table's options as shares of units."""

    def worth() -> float:
        return best.reached

    units = unit_allocation(snap, table, best.time, worth=worth, prove=best.prove)
    return as_job_shares(snap, units, rules)


def job_options(
    snap: Snapshot,
    distinct: FloatArray,
    rules: UnitRules,
    *,
    agnostic: bool,
    kept: KeptTable | None = None,
) -> JobOptions:
    """Return the options of the jobs; ``agnostic`` uses mean speeds on every accelerator.

    With a ``kept`` table ``distinct`` has to be 0 for all jobs.
    """
    if kept is not None and not agnostic:
        table = kept.table(snap, np.zeros(len(snap.profiles.gang)), rules)
        return JobOptions(table, table.problem(np.ones(len(snap.job))))
    speed = None
    if agnostic:
        believed = snap.speed
        speed = np.where(believed > 0, mean_speed(believed, snap.capacity)[:, None], 0.0)
    table = unit_table(snap, distinct, rules, speed)
    return JobOptions(table, table.problem(np.ones(len(snap.job))))


def prices(snap: Snapshot) -> FloatArray:
    """Return accelerators → US dollars for one device and hour; all must be above 0."""
    usd_per_hour = snap.cluster.usd_per_hour
    for name, price in zip(snap.cluster.accelerators, usd_per_hour.tolist(), strict=True):
        if not price > 0:
            raise InputError(
                f"price of {name} missing or 0",
                fix=f"expected usd_per_hour.{name} above 0, in the instance or the cluster file",
                field="usd_per_hour",
            )
    return usd_per_hour
