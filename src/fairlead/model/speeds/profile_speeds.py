"""Speeds of a snapshot's profiles that their rows do not hold: those of spread gangs."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot


class _Subject(NamedTuple):
    """The part of a job that decides which measured speeds count for it."""

    id: str
    tenant: str
    workload: str


def believed_workload(snap: Snapshot, profile: int) -> str:
    """Return the workload by which the speeds of a profile's jobs are looked up."""
    workload, speeds = snap.profiles.workload[profile], snap.speeds
    if speeds is None or not speeds.measured:
        return workload
    job_id = ""
    if not workload:  # its only job has speeds of its own
        row = int(np.argmax(snap.profile == profile))
        job_id = snap.ids[int(snap.job[row])]
    tenant = snap.tenants[int(snap.profiles.tenant[profile])].id
    return speeds.workload_of(_Subject(job_id, tenant, workload))


def spread_speeds(snap: Snapshot) -> FloatArray:
    """Return profiles × accelerators → speed of a spread gang; of one device where it needs one.

    0 for profiles that no job of the snapshot has.
    """
    table, names = snap.speeds, snap.cluster.accelerators
    speed = np.zeros((len(snap.profiles.gang), len(names)))
    if table is None:
        return speed
    gang_on = np.broadcast_to(snap.profiles.gang_on, speed.shape)
    for p in np.unique(snap.profile).tolist():
        workload = believed_workload(snap, p)
        speed[p] = [
            table.speed(workload, (name,) * gang, placement="spread")
            for name, gang in zip(names, gang_on[p].tolist(), strict=True)
        ]
    return speed
