"""What the policies with a total for an objective have in common: options and their prices."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.shares import as_job_shares, class_speed, unit_allocation
from fairlead.policies._packing.table import UnitRules, UnitTable, unit_table
from fairlead.policies.base import mean_speed
from fairlead.solve import Best, OptionProblem


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The options of a snapshot's jobs, levels being steps per second."""

    table: UnitTable
    problem: OptionProblem

    @property
    def speed(self) -> FloatArray:
        """options → steps per second of all its members."""
        return self.table.speed_first + self.table.speed_second

    def cost(self, usd_per_hour: FloatArray) -> FloatArray:
        """Return options → price of its devices for an hour; packed jobs pay once."""
        return self.table.size * usd_per_hour[self.table.resource]

    def allocation(self, snap: Snapshot, best: Best, rules: UnitRules) -> Allocation:
        """Return the best times as shares of units."""

        def worth() -> float:
            return best.reached

        proof = best.proof
        prove = None if proof is None else lambda: proof
        found = unit_allocation(snap, self.table, best.time, worth=worth, prove=prove)
        return as_job_shares(snap, found, rules)

    def class_speed(self, best: Best) -> FloatArray:
        """Return classes → steps per second of each member."""
        return class_speed(self.table, best.time)


def choices(
    snap: Snapshot,
    distinct: FloatArray,
    rules: UnitRules,
    *,
    agnostic: bool,
) -> Choices:
    """Return the options of the jobs; ``agnostic`` takes mean speeds for speeds everywhere."""
    speed = None
    if agnostic:
        known = snap.speed
        speed = np.where(known > 0, mean_speed(known, snap.capacity)[:, None], 0.0)
    table = unit_table(snap, distinct, rules, speed)
    return Choices(table, table.problem(np.ones(len(snap.job))))


def prices(snap: Snapshot) -> FloatArray:
    """Return accelerators → US dollars for one device and hour, all known and above 0."""
    found = snap.cluster.usd_per_hour
    for name, price in zip(snap.cluster.accelerators, found.tolist(), strict=True):
        if not price > 0:
            raise InputError(
                f"the price of {name} is not known or 0",
                fix=f"give usd_per_hour.{name} above 0, in the instance or the cluster file",
                field="usd_per_hour",
            )
    return found
