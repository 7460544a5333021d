"""Subject of an explanation: speed and devices of a job or tenant in an allocation."""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.bundles import job_devices, job_speeds, normalised
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """The job, or the tenant with its jobs, that is explained."""

    name: str
    tenant: int
    rows: IntArray
    """rows of its jobs in the snapshot"""
    is_tenant: bool
    of_job: str | None = None
    """the requested job, if its tenant is explained instead"""


def speeds(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → steps/s, or tenants → normalised speed, by the rows of the allocation."""
    if allocation.rows == "jobs":
        return job_speeds(snap, allocation)
    total = np.zeros(len(snap.tenants))
    speed = np.zeros(len(allocation.share)) if allocation.speed is None else allocation.speed
    np.add.at(total, allocation.members[:, 0], speed)
    return total


def speed_of(subject: Subject, snap: Snapshot, speed: FloatArray, rows: str) -> float:
    """Return the subject's speed: steps/s of a job, normalised speed of a tenant.

    ``snap`` provides the normalisation, also for speeds in a changed snapshot.
    """
    if rows == "tenants":
        return float(speed[subject.tenant])
    if subject.is_tenant:
        return float(normalised(snap, speed)[subject.rows].sum())
    return float(speed[subject.rows[0]])


def devices_of(subject: Subject, snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return accelerators → average number of devices that the subject holds."""
    if allocation.rows == "jobs":
        held: FloatArray = job_devices(snap, allocation)[subject.rows].sum(axis=0)
        return held
    held = np.zeros(len(snap.capacity))
    share = allocation.share[allocation.members[:, 0] == subject.tenant].sum(axis=0)
    for column, devices in zip(allocation.columns, share.tolist(), strict=True):
        held[column.accelerator] += devices
    return held


def devices_in_use(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return accelerators → number of devices in use."""
    if allocation.rows == "jobs":
        total: FloatArray = job_devices(snap, allocation).sum(axis=0)
        return total
    total = np.zeros(len(snap.capacity))
    for column, devices in zip(allocation.columns, allocation.share.sum(axis=0), strict=True):
        total[column.accelerator] += devices
    return total
