"""Participants of an allocation, and the devices and speeds that it gives them."""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.participants import ParticipantKind, Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError, UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.base import mean_speed
from fairlead.policies.rules.tenant_rows import tenant_table

_OF_JOBS = "each job at most all of its time, each accelerator at most its devices"
_OF_TENANTS = "each accelerator at most its devices, of which a tenant can use any number"
_UNPACKED = "; no two jobs on one device"


def participants_of(
    snap: Snapshot, allocation: Allocation, by: ParticipantKind | None = None
) -> Participants:
    """Return the participants of an allocation: its rows, or with ``by`` its jobs' tenants."""
    if not len(snap.job):
        raise InputError("empty", fix="expected at least one job", field="jobs")
    if allocation.rows == "tenants":
        if by == "jobs":
            raise UsageError(
                "--by: not supported: job: this policy allocates to tenants, expected tenant"
            )
        return _tenants_with_workloads(snap)
    packed = allocation.members.shape[1] > 1
    feasible_set = _OF_JOBS + _UNPACKED * packed
    return (_tenants_with_jobs if by == "tenants" else _jobs)(snap, feasible_set)


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
    return TenantTree(snap.tenants).entitlements(active)[tenant]


def job_gains(snap: Snapshot) -> FloatArray:
    """Return jobs × accelerators → normalised speed of a job that runs there all the time.

    A device held all the time counts as its speed over the mean speed of all devices.
    """
    mean = mean_speed(snap.gang_speed, snap.capacity)
    scale = snap.gang / np.where(mean > 0, mean, 1.0)
    fits = snap.gang_on <= snap.capacity
    gains: FloatArray = np.where(fits, snap.speed * scale[:, None], 0.0)
    return gains


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedShares:
    """Normalised speeds and devices that participants receive."""

    value: FloatArray
    """participants → normalised speed"""
    devices: FloatArray
    """participants × accelerators → devices"""


def received_shares(
    snap: Snapshot, allocation: Allocation, participants: Participants
) -> ReceivedShares:
    """Return the devices and normalised speeds that an allocation gives the participants.

    A tenant uses its devices as well as it can; jobs have the speeds of the allocation.
    """
    if allocation.rows == "tenants":
        held = tenant_devices(snap, allocation, participants)
        best = [participants.value(i, held[i : i + 1])[0] for i in range(len(participants))]
        return ReceivedShares(np.array(best), held)
    devices = job_devices(snap, allocation)
    value = normalised(snap, job_speeds(snap, allocation))
    if participants.by == "jobs":
        return ReceivedShares(value, devices)
    tenant = participant_of_job(snap, participants)
    held = np.zeros((len(participants), devices.shape[1]))
    np.add.at(held, tenant, devices)
    total = np.zeros(len(participants))
    np.add.at(total, tenant, value)
    return ReceivedShares(total, held)


def tenant_devices(
    snap: Snapshot, allocation: Allocation, participants: Participants
) -> FloatArray:
    """Return participants × accelerators → devices of an allocation to tenants."""
    devices = _by_accelerator(allocation, len(snap.capacity))
    held = np.zeros((len(snap.tenants), devices.shape[1]))
    np.add.at(held, allocation.members[:, 0], devices)
    number = {tenant.id: i for i, tenant in enumerate(snap.tenants)}
    return held[[number[name] for name in participants.names]]


def participant_of_job(snap: Snapshot, participants: Participants) -> IntArray:
    """Return jobs → the participant that it is or belongs to; -1 if none."""
    if participants.by == "jobs":
        return np.arange(len(snap.job))
    number = {name: i for i, name in enumerate(participants.names)}
    of_tenant = np.array([number.get(tenant.id, -1) for tenant in snap.tenants])
    return of_tenant[snap.tenant]


def normalised(snap: Snapshot, speed: FloatArray) -> FloatArray:
    """Return jobs → steps per second, in devices of average speed."""
    mean = mean_speed(snap.gang_speed, snap.capacity)
    in_devices: FloatArray = snap.gang * speed / np.where(mean > 0, mean, 1.0)
    return in_devices


def job_speeds(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → steps per second under an allocation to jobs."""
    if allocation.speed is not None:
        return allocation.speed
    row = rows_of(snap, allocation)
    speed = np.zeros(len(snap.job))
    share = _by_accelerator(allocation, len(snap.capacity))
    np.add.at(speed, row[:, 0], (share * snap.speed[row[:, 0]]).sum(axis=1))
    return speed


def job_devices(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs × accelerators → average devices; packed jobs divide theirs evenly."""
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
    """Return units × members → row of the job in the snapshot; -1 for none."""
    members = allocation.members
    row = np.searchsorted(snap.job, members)
    rows: IntArray = np.where(members >= 0, row, -1)
    return rows


def _by_accelerator(allocation: Allocation, n_accelerators: int) -> FloatArray:
    """Return rows × accelerators → share, summed over placements."""
    share = np.zeros((len(allocation.share), n_accelerators))
    for i, column in enumerate(allocation.columns):
        share[:, column.accelerator] += allocation.share[:, i]
    return share
