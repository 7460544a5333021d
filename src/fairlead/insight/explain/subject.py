"""Where a job or tenant stands in an allocation: its speed, its devices and what they cost."""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.bundles import job_devices, job_speeds, normalised
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """Whom an explanation is about: a job, or a tenant with its jobs."""

    name: str
    tenant: int
    rows: IntArray
    """its jobs"""
    is_tenant: bool
    of_job: str | None = None
    """the job that was asked for, where its tenant is explained instead"""


def speeds(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return what speeds are compared in: jobs → steps/s, or tenants → normalised speed."""
    if allocation.rows == "jobs":
        return job_speeds(snap, allocation)
    found = np.zeros(len(snap.tenants))
    given = np.zeros(len(allocation.share)) if allocation.speed is None else allocation.speed
    np.add.at(found, allocation.members[:, 0], given)
    return found


def speed_of(subject: Subject, snap: Snapshot, speed: FloatArray, rows: str) -> float:
    """Return the subject's speed: of a job in steps/s, of a tenant normalised.

    ``snap`` is the snapshot whose normalisation counts, also for speeds in another one.
    """
    if rows == "tenants":
        return float(speed[subject.tenant])
    if subject.is_tenant:
        return float(normalised(snap, speed)[subject.rows].sum())
    return float(speed[subject.rows[0]])


def devices_of(subject: Subject, snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return accelerators → devices that the subject holds on average."""
    if allocation.rows == "jobs":
        held: FloatArray = job_devices(snap, allocation)[subject.rows].sum(axis=0)
        return held
    held = np.zeros(len(snap.capacity))
    mine = allocation.share[allocation.members[:, 0] == subject.tenant].sum(axis=0)
    for column, devices in zip(allocation.columns, mine.tolist(), strict=True):
        held[column.accelerator] += devices
    return held


def used(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return accelerators → devices that all hold together."""
    if allocation.rows == "jobs":
        total: FloatArray = job_devices(snap, allocation).sum(axis=0)
        return total
    total = np.zeros(len(snap.capacity))
    for column, devices in zip(allocation.columns, allocation.share.sum(axis=0), strict=True):
        total[column.accelerator] += devices
    return total
