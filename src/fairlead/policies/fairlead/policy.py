"""The policy ``fairlead``: one linear program over jobs' values of progress."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.table import UnitTable, unit_table
from fairlead.policies._packing.totals import JobOptions
from fairlead.policies.base import empty_allocation, mean_speed
from fairlead.policies.fairlead.lengths import estimate_left_s
from fairlead.policies.fairlead.promise import urgency
from fairlead.policies.fairlead.weights import fair_weights
from fairlead.solve import NO_PARTNER, OptionProblem, best_sum

_STAY = 0.1
"""extra value of the accelerator on which a job runs: nobody moves for less"""


@dataclass(frozen=True)
class Fairlead(UnitPolicy):
    """Serve where relative progress per device is greatest; keep promised finish times.

    Maximises Σ weight · urgency · speed / (fastest speed · √time left) over the shares: short jobs
    first, each where it is relatively fastest, and gangs by their progress per device. The
    urgency grows as a job nears the finish time of an equal split of the cluster by weight, so
    that such jobs come first and none starves. A job that runs counts a little more where it
    is. ``attained`` ignores declared lengths and orders jobs by service so far. ``agnostic``
    uses a job's mean speed on every accelerator, ``packed`` lets two jobs share devices where
    that pays, ``placement`` distinguishes gangs on one node from spread gangs.
    """

    attained: bool = False

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the greatest total value of progress."""
        if not len(snap.job):
            return empty_allocation(snap)
        speed = self._believed_speed(snap)
        # Every job is a class: equal jobs take turns only if both fit.
        number = snap.job.astype(np.float64).reshape(-1, 1)
        table = unit_table(snap, number, self._rules, speed if self.agnostic else None)
        problem = table.problem(self._value_per_step(snap, speed))
        best = best_sum(problem, _with_stay(snap, table, problem))
        return JobOptions(table, problem).allocation(snap, best, self._rules)

    def device_value(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → value of progress on one device of a gang there."""
        speed = self._believed_speed(snap)
        value: FloatArray = self._value_per_step(snap, speed)[:, None] * speed / snap.gang_on
        return value

    def _believed_speed(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → steps per second, its mean if accelerators are ignored."""
        speed = snap.speed
        if not self.agnostic:
            return speed
        return np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)

    def _value_per_step(self, snap: Snapshot, speed: FloatArray) -> FloatArray:
        """Return jobs → value of a step per second."""
        speed = np.where(snap.gang_on <= snap.capacity, speed, 0.0)
        fastest = speed.max(axis=1)
        safe = np.where(fastest > 0, fastest, 1.0)
        left_s = estimate_left_s(snap, safe, attained=self.attained)
        progress: FloatArray = 1.0 / (safe * np.sqrt(left_s))
        return fair_weights(snap) * urgency(snap, speed, left_s) * progress


def _with_stay(snap: Snapshot, table: UnitTable, problem: OptionProblem) -> FloatArray:
    """Return options → value, with the extra value of members that stay on their accelerator."""
    row = np.append(table.classes.representative, 0)  # class NO_PARTNER: any, its gain is 0
    stays_first = snap.on[row[problem.first]] == problem.resource
    stays_second = snap.on[row[problem.second]] == problem.resource
    assert NO_PARTNER == -1
    value: FloatArray = problem.gain_first * (1.0 + _STAY * stays_first)
    value += problem.gain_second * (1.0 + _STAY * stays_second)
    return value
