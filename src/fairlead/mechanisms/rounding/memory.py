"""Memory of rounding: deviations of virtual tenants from their shares, and jobs' last service."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fairlead.mechanisms._rounds.equal_accelerators import keep_in_place
from fairlead.mechanisms.rounding.apportionment import payable_deviations
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.profile_speeds import believed_workload
from fairlead.model.value import value
from fairlead.policies.base import Policy, WarmStart, allocate
from fairlead.policies.rules.tenant_rows import tenant_table

_FADES = 0.95
"""part of what was missed that is still remembered a round later"""


@value
class Deviations:
    """The current shares and the deviations from them, as of the last plan's start.

    A virtual tenant is the jobs of one tenant that gain alike from every accelerator and have the
    same gang. Its name is the number of its first profile, which never changes.
    """

    name: IntArray
    """virtual tenants → name"""
    tenant: IntArray
    """virtual tenants → tenant"""
    gang: IntArray
    """virtual tenants → gang of its jobs"""
    ideal: FloatArray
    """virtual tenants × accelerators → devices it should have (ideal of OEF §4.3)"""
    real: FloatArray
    """virtual tenants × accelerators → devices it has in the present round, counted for it"""
    dev: FloatArray
    """virtual tenants × accelerators → devices × rounds owed when the round began"""
    gain: FloatArray
    """virtual tenants × accelerators → normalised throughput of one device"""
    missed: FloatArray
    """virtual tenants × accelerators → devices × rounds forgiven, the older the less of them"""
    forgiven: FloatArray
    """accelerators → devices × rounds owed that were written off, in all"""
    job: IntArray
    member: IntArray
    """jobs → virtual tenant"""
    served_at: FloatArray
    """jobs → time at which it last held devices, or arrived"""
    estimated_s: FloatArray
    """tenants → normalised throughput that the shares promised, times seconds"""
    actual_s: FloatArray
    """tenants → normalised throughput of what was placed, times seconds"""
    actual: FloatArray
    """tenants → normalised throughput of the present round's placements"""
    present_s: FloatArray
    """tenants → seconds for which it had jobs"""
    workers: int
    """devices given to jobs, summed over rounds"""
    hit_workers: int
    """those of them that waited for slower ones of their gang (stragglers, OEF §4.4)"""
    starts_at: float
    changes: int
    solved_at: float

    @classmethod
    def empty(cls) -> "Deviations":
        """Return the memory before the first plan."""
        none, nobody = np.zeros((0, 1)), np.zeros(0)
        return cls(
            name=NO_INTS,
            tenant=NO_INTS,
            gang=NO_INTS,
            ideal=none,
            real=none,
            dev=none,
            gain=none,
            missed=none,
            forgiven=nobody,
            job=NO_INTS,
            member=NO_INTS,
            served_at=nobody,
            estimated_s=nobody,
            actual_s=nobody,
            actual=nobody,
            present_s=nobody,
            workers=0,
            hit_workers=0,
            starts_at=0.0,
            changes=-1,
            solved_at=-np.inf,
        )

    def advanced_to(self, snap: Snapshot, round_s: float) -> "Deviations":
        """Return the memory as it stands at the snapshot's start.

        What a tenant was given counts as had for the whole time, also where a job ended early:
        the devices stayed the tenant's.
        """
        tenants = len(self.present_s)
        passed_s = snap.starts_at - self.starts_at
        promised = np.bincount(self.tenant, (self.ideal * self.gain).sum(axis=1), tenants)
        present = np.bincount(self.tenant, minlength=tenants) > 0
        served = self.last_served(snap)
        served[snap.lease >= 0] = snap.starts_at
        return replace(
            self,
            dev=self.dev + (self.ideal - self.real) * (passed_s / round_s),
            job=snap.job,
            served_at=served,
            estimated_s=self.estimated_s + promised * passed_s,
            actual_s=self.actual_s + self.actual * passed_s,
            present_s=self.present_s + present * passed_s,
            starts_at=snap.starts_at,
        )

    def last_served(self, snap: Snapshot) -> FloatArray:
        """Return jobs → time at which it last held devices, or arrived."""
        if np.array_equal(self.job, snap.job):
            return self.served_at.copy()
        served = snap.arrival_at.copy()
        if len(self.job):
            at = np.minimum(np.searchsorted(self.job, snap.job), len(self.job) - 1)
            known = self.job[at] == snap.job
            served[known] = self.served_at[at[known]]
        return served

    def with_new_shares(self, shares: Policy, snap: Snapshot, warm: WarmStart) -> "Deviations":
        """Return the memory under new shares, with the deviations carried over.

        ``shares`` gives time shares of jobs; a virtual tenant's devices are the sum over its own.
        """
        name = snap.profiles.alike[snap.profile]
        names, member = np.unique(name, return_inverse=True)
        count = len(names)
        share = keep_in_place(snap, allocate(shares, snap, warm).share) * snap.gang[:, None]
        ideal = _sums(share, member, count)
        table = tenant_table(snap, warm)
        gain = np.zeros_like(ideal)
        runs = table.row_of_job >= 0
        np.maximum.at(gain, member[runs], table.gain[table.row_of_job[runs]])
        kept, missed = np.zeros_like(ideal), np.zeros_like(ideal)
        mine = names.searchsorted(self.name)
        known = names[np.minimum(mine, count - 1)] == self.name if count else mine < 0
        kept[mine[known]], missed[mine[known]] = self.dev[known], self.missed[known]
        owed = _moved(kept, ideal, gain)
        gang = snap.profiles.gang[names]
        dev = payable_deviations(np.minimum(owed, gang[:, None]), ideal, gang, snap.capacity)
        tenants = max(int(snap.profiles.tenant.max(initial=-1)) + 1, len(self.present_s))
        return replace(
            self,
            name=names,
            tenant=snap.profiles.tenant[names],
            gang=gang,
            ideal=ideal,
            real=np.zeros_like(ideal),
            dev=dev,
            gain=gain,
            missed=missed,
            forgiven=_wider(self.forgiven, len(snap.capacity)) + (owed - dev).sum(axis=0),
            member=member,
            estimated_s=_wider(self.estimated_s, tenants),
            actual_s=_wider(self.actual_s, tenants),
            actual=_wider(self.actual, tenants),
            present_s=_wider(self.present_s, tenants),
            changes=snap.changes,
            solved_at=snap.starts_at,
        )

    def placed_single(self, rows: IntArray, accelerators: IntArray) -> "PlacedRound":
        """Return the throughput of jobs of one device, each on its accelerator."""
        member = self.member[rows]
        actual = np.zeros_like(self.present_s)
        np.add.at(actual, self.tenant[member], self.gain[member, accelerators])
        return PlacedRound(actual, len(rows), 0)

    def placed(self, snap: Snapshot, goal: Mapping[int, tuple[int, ...]]) -> "PlacedRound":
        """Return the throughput of jobs on these devices; ``goal`` is rows → devices."""
        tenant = self.tenant[self.member]
        actual = np.zeros_like(self.present_s)
        hit = 0
        for row, devices in goal.items():
            rate, waits = _placed(snap, row, devices, self.gain[self.member[row]])
            actual[tenant[row]] += rate
            hit += waits
        return PlacedRound(actual, sum(map(len, goal.values())), hit)

    def with_round(self, due: FloatArray, snap: Snapshot, placed: "PlacedRound") -> "Deviations":
        """Return the memory with the round's devices in it; ``due`` is the debt when it ends.

        Where gangs do not divide the devices, deviations would grow for ever: an excess over
        the gang is forgiven, and so is a lead of more than the largest gang and one round's
        share.
        """
        runs = self.ideal > 0
        largest: IntArray | int = 1
        if not snap.profiles.single:
            largest = np.where(snap.speed > 0, snap.gang[:, None], 0).max(axis=0, initial=0)
        lead = -(largest + self.ideal)
        kept = np.where(runs, np.minimum(np.maximum(due, lead), self.gang[:, None]), 0.0)
        cut = np.where(runs, np.maximum(due - kept, 0.0), 0.0)
        return replace(
            self,
            real=self.dev + self.ideal - due,
            dev=self.dev + kept - due,
            missed=_FADES * self.missed + cut,
            forgiven=self.forgiven + cut.sum(axis=0),
            actual=placed.actual,
            workers=self.workers + placed.workers,
            hit_workers=self.hit_workers + placed.hit_workers,
        )

    def given_and_owed(self, snap: Snapshot) -> tuple[FloatArray, FloatArray]:
        """Return tenants × accelerators → devices it was given and does not hold, and is owed."""
        shape = (int(snap.profiles.tenant.max(initial=-1)) + 1, len(snap.capacity))
        lacks, owed = np.zeros(shape), np.zeros(shape)
        if len(self.tenant):
            np.add.at(lacks, self.tenant, self.real)
            np.add.at(owed, self.tenant, self.dev + self.ideal - self.real)
        lane, device = (snap.holds >= 0).nonzero()
        holder = snap.tenant[snap.holds[lane, device]]
        np.subtract.at(lacks, (holder, snap.cluster.accelerator_of[device]), 1.0)
        return lacks, owed


class PlacedRound(NamedTuple):
    """The throughput that the devices of a round give the tenants."""

    actual: FloatArray
    """tenants → normalised throughput"""
    workers: int
    """devices given to jobs"""
    hit_workers: int
    """those of them that wait for slower ones of their gang"""


def _placed(
    snap: Snapshot, row: int, devices: tuple[int, ...], gain: FloatArray
) -> tuple[float, int]:
    """Return the normalised throughput of a job on these devices, and its workers that wait."""
    accelerator = snap.cluster.accelerator_of[list(devices)]
    if len(devices) == 1:
        return float(gain[accelerator[0]]), 0
    slowest = gain[accelerator].min()
    rate = float(slowest) * len(devices)
    if snap.speeds is not None and len(set(snap.cluster.node_of[list(devices)].tolist())) > 1:
        workload = believed_workload(snap, int(snap.profile[row]))
        names = [snap.cluster.accelerators[k] for k in accelerator.tolist()]
        together = snap.speeds.speed(workload, names)
        apart = snap.speeds.speed(workload, names, placement="spread")
        rate *= apart / together if together > 0 else 1.0
    return rate, int(np.count_nonzero(gain[accelerator] > slowest))


def _moved(dev: FloatArray, ideal: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the deviations with those on accelerators without a share moved to the largest one.

    They count there by what a device is worth to the virtual tenant.
    """
    gone = ideal <= 0
    worth = np.where(gone, dev * gain, 0.0).sum(axis=1)
    rows, main = np.arange(len(dev)), ideal.argmax(axis=1)
    unit = gain[rows, main]
    moved = np.where(gone, 0.0, dev)
    moved[rows, main] += np.divide(worth, unit, out=np.zeros_like(worth), where=unit > 0)
    return np.where(ideal.sum(axis=1, keepdims=True) > 0, moved, 0.0)


def _sums(values: FloatArray, member: IntArray, count: int) -> FloatArray:
    total = np.zeros((count, values.shape[1]))
    np.add.at(total, member, values)
    return total


def _wider(values: FloatArray, count: int) -> FloatArray:
    return np.concatenate([values, np.zeros(max(count - len(values), 0))])
