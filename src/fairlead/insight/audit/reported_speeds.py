"""What a policy does when a participant reports other speeds than its own.

A report is a speed vector. What most policies see of it are its speed-ups: the speeds relative
to the participant's slowest accelerator. Some see the scale too. A lie multiplies the speeds on
each accelerator; all jobs of a participant lie alike.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.insight.bundles import (
    Received,
    job_gains,
    job_speeds,
    normalised,
    participant_of_job,
    received,
    rows_of,
    tenant_devices,
)
from fairlead.insight.counterfactuals import with_jobs
from fairlead.insight.participants import Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart, allocate
from fairlead.solve import merge


@dataclass(frozen=True, slots=True, eq=False)
class MisreportEvaluator:
    """Tells what a lie is worth to who tells it, in true speeds."""

    snap: Snapshot
    policy: Policy
    parties: Participants
    got: Received
    """what the truth gives"""
    scale: FloatArray
    """participants → what gains are relative to"""
    warm: WarmStart = field(default_factory=WarmStart)
    """solver state of this audit's own"""

    def jobs_of(self, participant: int) -> IntArray:
        """Return the rows of the participant's jobs."""
        return np.flatnonzero(participant_of_job(self.snap, self.parties) == participant)

    def speed(self, participant: int) -> FloatArray:
        """Return accelerators → normalised speed of one device, over all the jobs there."""
        jobs = self.jobs_of(participant)
        total: FloatArray = (job_gains(self.snap)[jobs] / self.snap.gang_on[jobs]).sum(axis=0)
        return total

    def slowest(self) -> IntArray:
        """Return participants → the accelerator that its speed-ups are relative to.

        It is the one that is slowest for most, and for who cannot use that its own slowest.
        """
        speed = np.array([self.speed(i) for i in range(len(self.parties))])
        own = np.where(speed > 0, speed, np.inf).argmin(axis=1)
        votes = np.bincount(own, self.parties.weight, speed.shape[1])
        if not self.parties.timed:
            # Tenants' speeds are in units of an accelerator that they have agreed on already.
            gain = self.parties.gain
            unit = ((gain == 0) | (np.abs(gain - 1) < 1e-9)).all(axis=0) & (gain > 0).any(axis=0)
            votes = np.where(unit, votes + 1.0, 0.0) if unit.any() else votes
        common = int(votes.argmax())
        found: IntArray = np.where(speed[:, common] > 0, common, own)
        return found

    def alike(self) -> IntArray:
        """Return participants → the first one that is like it in all that an audit sees."""
        snap, n = self.snap, len(self.parties)
        if len(snap.job) > n:
            return np.arange(n)
        row = np.concatenate([self.jobs_of(i) for i in range(n)])
        value = np.array([float(f"{x:.9g}") for x in self.got.value.tolist()])
        gang = snap.gang_on[row].astype(float)
        kinds = merge(snap.speed[row], gang, self.parties.weight, value)
        return kinds.representative[kinds.index_of_member]

    def gain(self, participant: int, times: FloatArray) -> float:
        """Return the relative gain in true speed from reporting ``times`` the true speeds.

        ``times`` has a multiplier for each accelerator.
        """
        jobs = self.jobs_of(participant)
        told = tell(self.snap, jobs, times)
        allocation = allocate(self.policy, told, self.warm)
        if allocation.rows == "tenants":
            held = tenant_devices(self.snap, allocation, self.parties)[participant]
            after = self.parties.value(participant, held[None])[0]
        else:
            speed = true_speeds(self.snap, told, allocation)
            after = normalised(self.snap, speed)[jobs].sum()
        return float((after - self.got.value[participant]) / self.scale[participant])

    def depends_on_scale(self) -> bool:
        """Tell whether it matters to the policy how fast jobs are, beyond their speed-ups."""
        factor = np.array([2.0, 0.5, 3.0])[np.arange(len(self.snap.profile)) % 3]
        told = self.snap
        for by in np.unique(factor).tolist():
            told = tell(told, np.flatnonzero(factor == by), np.full(len(told.capacity), by))
        allocation = allocate(self.policy, told, self.warm)
        if allocation.rows == "jobs":
            speed = true_speeds(self.snap, told, allocation)
            allocation = replace(allocation, speed=speed)
        after = received(self.snap, allocation, self.parties).value
        return not np.allclose(after, self.got.value, rtol=1e-6, atol=1e-9)


def tell(snap: Snapshot, jobs: IntArray, times: FloatArray) -> Snapshot:
    """Return the snapshot in which these jobs report ``times`` their speeds, in nine digits.

    So a lie can be printed and told again without a difference in the last bits.
    """
    return with_jobs(snap, jobs, speed=_nine_digits(snap.speed[jobs], times))


def _nine_digits(speed: FloatArray, times: FloatArray) -> FloatArray:
    told = [[float(f"{x:.9g}") for x in row] for row in (speed * times).tolist()]
    return np.where(times == 1.0, speed, np.array(told).reshape(speed.shape))


def true_speeds(snap: Snapshot, told: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → true steps per second under an allocation made for what was told.

    What was told is about jobs alone on their devices; packed and spread speeds are measured.
    """
    if allocation.speed is None:
        return job_speeds(snap, allocation)
    row = rows_of(snap, allocation)
    alone = (row >= 0).sum(axis=1) == 1
    job = row[alone, 0]
    excess = told.speed - snap.speed
    speed = allocation.speed.copy()
    for i, column in enumerate(allocation.columns):
        if column.placement != "spread":
            false = allocation.share[alone, i] * excess[job, column.accelerator]
            np.subtract.at(speed, job, false)
    return speed
