"""Effect of misreported speeds on a policy's allocation.

A report is a speed vector. Most policies depend only on its speed-ups, the speeds relative to the
participant's slowest accelerator; some depend on the scale too. A misreport multiplies the speeds
on each accelerator by the same factors for all jobs of a participant.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.insight.bundles import (
    ReceivedShares,
    job_gains,
    job_speeds,
    normalised,
    participant_of_job,
    received_shares,
    rows_of,
    tenant_devices,
)
from fairlead.insight.counterfactuals import with_jobs
from fairlead.insight.participants import Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart, allocate
from fairlead.solve.classes import merge


@dataclass(frozen=True, slots=True, eq=False)
class MisreportEvaluator:
    """Computes the gain of a misreport for the participant, in true speeds."""

    snap: Snapshot
    policy: Policy
    participants: Participants
    truthful: ReceivedShares
    """shares received with truthful reports"""
    scale: FloatArray
    """participants → base of relative gains"""
    warm: WarmStart = field(default_factory=WarmStart)
    """solver state of this audit"""

    def jobs_of(self, participant: int) -> IntArray:
        """Return the rows of the participant's jobs."""
        return np.flatnonzero(participant_of_job(self.snap, self.participants) == participant)

    def speed(self, participant: int) -> FloatArray:
        """Return accelerators → normalised speed per device, summed over its jobs."""
        jobs = self.jobs_of(participant)
        total: FloatArray = (job_gains(self.snap)[jobs] / self.snap.gang_on[jobs]).sum(axis=0)
        return total

    def slowest(self) -> IntArray:
        """Return participants → the reference accelerator of its speed-ups.

        It is the accelerator that is slowest for most participants; a participant that cannot
        use it takes its own slowest.
        """
        speed = np.array([self.speed(i) for i in range(len(self.participants))])
        own = np.where(speed > 0, speed, np.inf).argmin(axis=1)
        votes = np.bincount(own, self.participants.weight, speed.shape[1])
        if not self.participants.timed:
            # Speeds of tenants are already relative to a common accelerator.
            gain = self.participants.gain
            unit = ((gain == 0) | (np.abs(gain - 1) < 1e-9)).all(axis=0) & (gain > 0).any(axis=0)
            votes = np.where(unit, votes + 1.0, 0.0) if unit.any() else votes
        common = int(votes.argmax())
        slowest: IntArray = np.where(speed[:, common] > 0, common, own)
        return slowest

    def first_equal(self) -> IntArray:
        """Return participants → the first participant that is equal for the audit."""
        snap, n = self.snap, len(self.participants)
        if len(snap.job) > n:
            return np.arange(n)
        row = np.concatenate([self.jobs_of(i) for i in range(n)])
        value = np.array([float(f"{x:.9g}") for x in self.truthful.value.tolist()])
        gang = snap.gang_on[row].astype(float)
        classes = merge(snap.speed[row], gang, self.participants.weight, value)
        return classes.representative[classes.index_of_member]

    def gain(self, participant: int, multipliers: FloatArray) -> float:
        """Return the relative gain in true speed from reporting multiplied speeds.

        ``multipliers`` has one factor per accelerator.
        """
        jobs = self.jobs_of(participant)
        reported = with_reported_speeds(self.snap, jobs, multipliers)
        allocation = allocate(self.policy, reported, self.warm)
        if allocation.rows == "tenants":
            held = tenant_devices(self.snap, allocation, self.participants)[participant]
            after = self.participants.value(participant, held[None])[0]
        else:
            speed = true_speeds(self.snap, reported, allocation)
            after = normalised(self.snap, speed)[jobs].sum()
        return float((after - self.truthful.value[participant]) / self.scale[participant])

    def depends_on_scale(self, factors: FloatArray) -> bool:
        """Return whether any share changes if all participants multiply their speeds by these."""
        participant = participant_of_job(self.snap, self.participants)
        factor = np.where(participant >= 0, factors[participant], 1.0)
        reported = self.snap
        for by in np.unique(factor[factor != 1.0]).tolist():
            reported = with_reported_speeds(
                reported, np.flatnonzero(factor == by), np.full(len(reported.capacity), by)
            )
        allocation = allocate(self.policy, reported, self.warm)
        if allocation.rows == "jobs":
            speed = true_speeds(self.snap, reported, allocation)
            allocation = replace(allocation, speed=speed)
        after = received_shares(self.snap, allocation, self.participants).value
        return not np.allclose(after, self.truthful.value, rtol=1e-6, atol=1e-9)


def with_reported_speeds(snap: Snapshot, jobs: IntArray, multipliers: FloatArray) -> Snapshot:
    """Return the snapshot in which these jobs report multiplied speeds, rounded to nine digits.

    Rounding makes a printed misreport exactly reproducible.
    """
    return with_jobs(snap, jobs, speed=_nine_digits(snap.speed[jobs], multipliers))


def _nine_digits(speed: FloatArray, multipliers: FloatArray) -> FloatArray:
    rounded = [[float(f"{x:.9g}") for x in row] for row in (speed * multipliers).tolist()]
    return np.where(multipliers == 1.0, speed, np.array(rounded).reshape(speed.shape))


def true_speeds(snap: Snapshot, reported: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → true steps per second under an allocation for reported speeds.

    Reports concern solo speeds only; packed and spread speeds are measured.
    """
    if allocation.speed is None:
        return job_speeds(snap, allocation)
    row = rows_of(snap, allocation)
    alone = (row >= 0).sum(axis=1) == 1
    job = row[alone, 0]
    excess = reported.speed - snap.speed
    speed = allocation.speed.copy()
    for i, column in enumerate(allocation.columns):
        if column.placement != "spread":
            overstated = allocation.share[alone, i] * excess[job, column.accelerator]
            np.subtract.at(speed, job, overstated)
    return speed
