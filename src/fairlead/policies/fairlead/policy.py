"""The policy ``fairlead``: one linear program over jobs' values of progress."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.near_pairs import near_pairs
from fairlead.policies._packing.policy import UnitPolicy
from fairlead.policies._packing.table import UnitTable, unit_table
from fairlead.policies._packing.totals import allocation_of
from fairlead.policies.base import WarmStart, empty_allocation, job_allocation, mean_speed
from fairlead.policies.fairlead.lengths import estimate_left_s
from fairlead.policies.fairlead.promise import FOR_IDLE_DEVICES, IN_PROGRAM, Promise, urgency
from fairlead.policies.fairlead.weights import fair_weights
from fairlead.policies.rules.quotas import any_quota
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.options.warm_sum import WarmSum
from fairlead.solve.single_devices import best_single_devices

_STAY = 0.1
"""extra value of the accelerator on which a job runs: nobody moves for less"""
_REPAID_S = 600.0
"""seconds within which the gain of a move has to repay the restart, if the job runs so long"""


@dataclass(frozen=True)
class Fairlead(UnitPolicy):
    """Serve where relative progress per device is greatest; keep promised finish times.

    Maximises Σ weight · urgency · speed / (fastest speed · √time left) over the shares: short jobs
    first, each where it is relatively fastest, and gangs by their progress per device. The
    urgency grows as a job nears the finish time of an equal split of the cluster by weight, so
    that such jobs come first and none starves. A job that runs counts a little more where it
    is, the more the longer its restarts take. ``attained`` ignores declared lengths and orders
    jobs by service so far. ``agnostic`` uses a job's mean speed on every accelerator, ``packed``
    lets two jobs share devices where that pays, ``placement`` distinguishes gangs on one node
    from spread gangs.
    """

    alone: ClassVar[Capabilities] = Capabilities(
        per_accelerator_gangs=True, reads_restarts=True, keeps_places=True
    )
    attained: bool = False
    """ignore declared lengths and order jobs by service so far"""

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares with the greatest total value of progress."""
        return self.allocate_warm(snap, WarmStart())

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same, starting from the planner's last solution."""
        if not len(snap.job):
            return empty_allocation(snap)
        speed = self._believed_speed(snap)
        if snap.profiles.single and not (self.packed or self.placement or any_quota(snap)):
            allocation = self._single_devices(snap, speed)
            if allocation is not None:
                return allocation
        return self._solved(snap, speed, warm)

    def _single_devices(self, snap: Snapshot, speed: FloatArray) -> Allocation | None:
        """Return the shares of jobs of one device, None where others are nearly as good."""
        per_step = self._value_per_step(snap, speed, IN_PROGRAM)
        value = np.where(snap.capacity > 0, speed, 0.0) * per_step[:, None]
        there = snap.on[:, None] == np.arange(value.shape[1])
        value *= 1.0 + self._stay(snap, speed)[:, None] * there
        chosen = best_single_devices(value, snap.devices)
        if chosen is None:
            return None
        share = np.zeros(value.shape)
        runs = (chosen >= 0).nonzero()[0]
        share[runs, chosen[runs]] = 1.0

        def prove() -> Certificate:
            proof = self._solved(snap, speed, WarmStart()).prove
            assert proof is not None
            return proof()

        return job_allocation(snap, share, worth=lambda: float((value * share).sum()), prove=prove)

    def _solved(self, snap: Snapshot, speed: FloatArray, warm: WarmStart) -> Allocation:
        """Return the shares of the program over options."""
        per_step = self._value_per_step(snap, speed, IN_PROGRAM)
        stay = self._stay(snap, speed)
        last = warm.state(self, WarmSum)
        keys = snap.job.astype(np.uint64)

        def value_of(table: UnitTable, problem: OptionProblem) -> FloatArray:
            return _with_stay(snap, table, problem, stay)

        if self.packed and not self.placement:
            there = snap.on[:, None] == np.arange(len(snap.capacity))
            value = per_step[:, None] * (1.0 + stay[:, None] * there)
            pool = near_pairs(snap, self._rules, value, per_step, value_of)
            best = None if pool is None else last.best_of(pool, keys)
            if pool is not None and best is not None:
                return allocation_of(snap, pool.table, best, self._rules)
        # Every job is a class: equal jobs take turns only if both fit.
        number = snap.job.astype(np.float64).reshape(-1, 1)
        table = unit_table(snap, number, self._rules, speed if self.agnostic else None)
        problem = table.problem(per_step)
        best = last.best(problem, value_of(table, problem), keys[table.classes.representative])
        return allocation_of(snap, table, best, self._rules)

    def _stay(self, snap: Snapshot, speed: FloatArray) -> FloatArray:
        """Return jobs → extra value of its present accelerator, relative to that of progress."""
        left_s = estimate_left_s(snap, _fastest(speed), attained=self.attained)
        stay: FloatArray = _STAY + snap.restart_s / np.minimum(left_s, _REPAID_S)
        return stay

    def device_value(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → value of progress on one device of a gang there."""
        speed = self._believed_speed(snap)
        per_step = self._value_per_step(snap, speed, FOR_IDLE_DEVICES)
        value: FloatArray = per_step[:, None] * speed / snap.gang_on
        return value

    def _believed_speed(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → steps per second, its mean if accelerators are ignored."""
        speed = snap.speed
        if not self.agnostic:
            return speed
        return np.where(speed > 0, mean_speed(speed, snap.capacity)[:, None], 0.0)

    def _value_per_step(self, snap: Snapshot, speed: FloatArray, promise: Promise) -> FloatArray:
        """Return jobs → value of a step per second."""
        speed = np.where(snap.gang_on <= snap.capacity, speed, 0.0)
        fastest = _fastest(speed)
        left_s = estimate_left_s(snap, fastest, attained=self.attained)
        progress: FloatArray = 1.0 / (fastest * np.sqrt(left_s))
        return fair_weights(snap) * urgency(snap, speed, left_s, promise) * progress


def _fastest(speed: FloatArray) -> FloatArray:
    """Return jobs → speed on its fastest accelerator; 1 for a job that can run on none."""
    fastest = speed.max(axis=1)
    return np.where(fastest > 0, fastest, 1.0)


def _with_stay(
    snap: Snapshot, table: UnitTable, problem: OptionProblem, stay: FloatArray
) -> FloatArray:
    """Return options → value, with the extra value of members that stay on their accelerator.

    ``stay`` is jobs → that value, relative to the value of its progress.
    """
    row = np.append(table.classes.representative, 0)  # class NO_PARTNER: any, its gain is 0
    stays_first = snap.on[row[problem.first]] == problem.resource
    stays_second = snap.on[row[problem.second]] == problem.resource
    assert NO_PARTNER == -1
    stay = stay[row]
    value: FloatArray = problem.gain_first * (1.0 + stay[problem.first] * stays_first)
    value += problem.gain_second * (1.0 + stay[problem.second] * stays_second)
    return value
