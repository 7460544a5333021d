"""Who takes part, and what an allocation gives them: devices and speeds."""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.participants import By, Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError, UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import mean_speed
from fairlead.policies.rules.tenant_rows import entitlements, tenant_table

_OF_JOBS = "each job at most all of its time, each accelerator at most its devices"
_OF_TENANTS = "each accelerator at most its devices, of which a tenant can use any number"
_UNPACKED = "; no two jobs on one device"


def participants_of(snap: Snapshot, allocation: Allocation, by: By | None = None) -> Participants:
    """Return the participants of an allocation: its rows, or its jobs' tenants if asked for."""
    if not len(snap.job):
        raise InputError("there are no jobs", fix="give at least one job", field="jobs")
    if allocation.rows == "tenants":
        if by == "jobs":
            raise UsageError(
                "this policy gives devices to tenants, not to jobs; leave out --by job"
            )
        return _tenants_with_workloads(snap)
    packed = allocation.members.shape[1] > 1
    said = _OF_JOBS + _UNPACKED * packed
    return _tenants_with_jobs(snap, said) if by == "tenants" else _jobs(snap, said)


def _jobs(snap: Snapshot, feasible_set: str) -> Participants:
    return Participants(
        by="jobs",
        names=tuple(snap.ids[number] for number in snap.job.tolist()),
        weight=snap.weight.astype(float),
        owner=np.arange(len(snap.job)),
        gain=job_gains(snap),
        size=snap.gang_on.astype(float),
        portion=None,
        capacity=snap.devices,
        timed=True,
        feasible_set=feasible_set,
    )


def _tenants_with_jobs(snap: Snapshot, feasible_set: str) -> Participants:
    tenant, index = np.unique(snap.tenant, return_inverse=True)
    order = np.argsort(index, kind="stable")
    return Participants(
        by="tenants",
        names=tuple(snap.tenants[i].id for i in tenant.tolist()),
        weight=_weights(snap, tenant),
        owner=index[order],
        gain=job_gains(snap)[order],
        size=snap.gang_on[order].astype(float),
        portion=None,
        capacity=snap.devices,
        timed=True,
        feasible_set=feasible_set,
    )


def _tenants_with_workloads(snap: Snapshot) -> Participants:
    table = tenant_table(snap)
    order = np.argsort(table.tenant, kind="stable")
    tenant, index = np.unique(table.tenant[order], return_inverse=True)
    part = table.weight[order]
    return Participants(
        by="tenants",
        names=tuple(snap.tenants[i].id for i in tenant.tolist()),
        weight=_weights(snap, tenant),
        owner=index,
        gain=table.gain[order],
        size=np.ones((len(order), 1)),
        portion=part / np.bincount(index, part)[index],
        capacity=snap.devices,
        timed=False,
        feasible_set=_OF_TENANTS,
    )


def _weights(snap: Snapshot, tenant: IntArray) -> FloatArray:
    active = np.zeros(len(snap.tenants), dtype=bool)
    active[tenant] = True
    return entitlements(snap.tenants, active)[tenant]


def job_gains(snap: Snapshot) -> FloatArray:
    """Return jobs × accelerators → normalised speed of a job that runs there all the time.

    A device held for all the time counts as speed there over the mean speed of all devices.
    """
    mean = mean_speed(snap.gang_speed, snap.capacity)
    scale = snap.gang / np.where(mean > 0, mean, 1.0)
    fits = snap.gang_on <= snap.capacity
    gains: FloatArray = np.where(fits, snap.speed * scale[:, None], 0.0)
    return gains


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """What each participant gets; ``devices`` is participants × accelerators."""

    value: FloatArray
    """participants → normalised speed"""
    devices: FloatArray


def received(snap: Snapshot, allocation: Allocation, parties: Participants) -> Received:
    """Return the devices and normalised speeds that an allocation gives the participants.

    A tenant that gets devices makes the best of them; jobs get the speeds that the policy says.
    """
    if allocation.rows == "tenants":
        held = tenant_devices(snap, allocation, parties)
        best = [parties.value(i, held[i : i + 1])[0] for i in range(len(parties))]
        return Received(np.array(best), held)
    devices = job_devices(snap, allocation)
    value = normalised(snap, job_speeds(snap, allocation))
    if parties.by == "jobs":
        return Received(value, devices)
    tenant = participant_of_job(snap, parties)
    held = np.zeros((len(parties), devices.shape[1]))
    np.add.at(held, tenant, devices)
    total = np.zeros(len(parties))
    np.add.at(total, tenant, value)
    return Received(total, held)


def tenant_devices(snap: Snapshot, allocation: Allocation, parties: Participants) -> FloatArray:
    """Return participants × accelerators → devices that an allocation to tenants gives."""
    devices = _by_accelerator(allocation, len(snap.capacity))
    held = np.zeros((len(snap.tenants), devices.shape[1]))
    np.add.at(held, allocation.members[:, 0], devices)
    number = {tenant.id: i for i, tenant in enumerate(snap.tenants)}
    return held[[number[name] for name in parties.names]]


def participant_of_job(snap: Snapshot, parties: Participants) -> IntArray:
    """Return jobs → the participant that it is or belongs to, -1 if none."""
    if parties.by == "jobs":
        return np.arange(len(snap.job))
    number = {name: i for i, name in enumerate(parties.names)}
    of_tenant = np.array([number.get(tenant.id, -1) for tenant in snap.tenants])
    return of_tenant[snap.tenant]


def normalised(snap: Snapshot, speed: FloatArray) -> FloatArray:
    """Return jobs → steps per second as devices of average speed that would make them."""
    mean = mean_speed(snap.gang_speed, snap.capacity)
    found: FloatArray = snap.gang * speed / np.where(mean > 0, mean, 1.0)
    return found


def job_speeds(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → steps per second that the shares of an allocation to jobs give."""
    if allocation.speed is not None:
        return allocation.speed
    row = rows_of(snap, allocation)
    speed = np.zeros(len(snap.job))
    share = _by_accelerator(allocation, len(snap.capacity))
    np.add.at(speed, row[:, 0], (share * snap.speed[row[:, 0]]).sum(axis=1))
    return speed


def job_devices(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs × accelerators → devices held on average; packed jobs divide theirs evenly."""
    row = rows_of(snap, allocation)
    share = _by_accelerator(allocation, len(snap.capacity))
    members = (row >= 0).sum(axis=1)
    held = np.zeros((len(snap.job), len(snap.capacity)))
    for column in range(row.shape[1]):
        there = row[:, column] >= 0
        job = row[there, column]
        timed = allocation.measure == "time"
        gang = snap.gang_on[job] if timed else np.ones((len(job), 1))
        np.add.at(held, job, share[there] * (gang / members[there][:, None]))
    return held


def rows_of(snap: Snapshot, allocation: Allocation) -> IntArray:
    """Return units × members → row of the job in the snapshot, -1 where there is none."""
    members = allocation.members
    row = np.searchsorted(snap.job, members)
    found: IntArray = np.where(members >= 0, row, -1)
    return found


def _by_accelerator(allocation: Allocation, kinds: int) -> FloatArray:
    """Return rows × accelerators → share, over all placements."""
    share = np.zeros((len(allocation.share), kinds))
    for i, column in enumerate(allocation.columns):
        share[:, column.accelerator] += allocation.share[:, i]
    return share
