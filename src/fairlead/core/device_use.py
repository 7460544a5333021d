"""The use of each device of a scheduler's cluster."""

from typing import Any, NamedTuple

import numpy as np

from fairlead.core.jobs import PROFILE
from fairlead.core.scheduler import Scheduler
from fairlead.model.lease import SLOT_LIMIT
from fairlead.model.plan import ABSENT
from fairlead.model.speeds.key import Consolidation, SpeedKey, scoped_workload
from fairlead.model.speeds.placement import placement_of
from fairlead.policies.base import mean_speed


class DeviceUse(NamedTuple):
    """One device and the jobs that hold it."""

    node: str
    accelerator: str
    jobs: tuple[int, ...]
    """numbers of the jobs that hold it"""
    taken: bool
    """whether a user outside Fairlead holds it, or it is missing"""


def device_use(scheduler: Scheduler[Any]) -> list[DeviceUse]:
    """Return all devices, except those of removed nodes, in their order."""
    nodes, cluster, leases = scheduler.nodes, scheduler.cluster, scheduler.leases
    columns = (cluster.node_of, cluster.accelerator_of, nodes.taken)
    node_of, accelerator_of, taken = (column.tolist() for column in columns)
    names, removed = [node.id for node in cluster.nodes], nodes.removed
    accelerators, job_of = cluster.accelerators, leases.job
    return [
        DeviceUse(
            names[node_of[i]],
            accelerators[accelerator_of[i]],
            tuple(job_of.item(slot) for slot in slots if slot >= 0),
            bool(taken[i]),
        )
        for i, slots in enumerate(leases.holder.T.tolist())
        if node_of[i] not in removed
    ]


def accelerators_held(scheduler: Scheduler[Any], number: int) -> dict[str, int]:
    """Return accelerator → devices that a job and its copies hold, in the cluster's order."""
    jobs, leases, cluster = scheduler.jobs, scheduler.leases, scheduler.cluster
    accelerator, lease = int(jobs.on[number]), int(jobs.lease[number])
    if accelerator == ABSENT:
        return {}
    if accelerator >= 0 and lease != ABSENT:
        return {cluster.accelerators[accelerator]: leases.devices_of(lease)}
    held = np.isin(leases.holder, leases.of_job(number)).any(axis=0)
    counts = np.bincount(cluster.accelerator_of[held], minlength=len(cluster.accelerators))
    return {name: n for name, n in zip(cluster.accelerators, counts.tolist(), strict=True) if n}


class TenantHolding(NamedTuple):
    """Devices that the jobs of a tenant hold now, and the speed that they give them."""

    running: int
    """jobs that hold devices"""
    devices: dict[str, int]
    """accelerator → devices; those of packed jobs count for each of them"""
    speed: float
    """effective throughput: in devices of average speed of the cluster for these jobs; a packed
    job counts as if it were alone"""


def tenant_holdings(scheduler: Scheduler[Any]) -> list[TenantHolding]:
    """Return the holdings of all tenants, in their order; nothing before the first job."""
    jobs, leases, cluster = scheduler.jobs, scheduler.leases, scheduler.cluster
    if not len(jobs):
        return []
    profiles = jobs.profiles
    lane, device = (leases.holder >= 0).nonzero()
    job = leases.job[leases.holder[lane, device]]
    profile, accelerator = jobs.ints[job, PROFILE], cluster.accelerator_of[device]
    tenant = profiles.tenant[profile]
    devices = np.zeros((len(jobs.tenants), len(cluster.accelerators)), dtype=np.int64)
    np.add.at(devices, (tenant, accelerator), 1)
    believed = profiles.gang_speed if profiles.member is None else profiles.member
    average = mean_speed(believed, cluster.counts)[profile]
    relative = believed[profile, accelerator] / np.where(average > 0, average, 1.0)
    speed = np.bincount(tenant, relative, len(devices))
    running = np.bincount(
        profiles.tenant[jobs.ints[np.unique(job), PROFILE]], minlength=len(devices)
    )
    return [
        TenantHolding(
            int(running[i]),
            {name: n for name, n in zip(cluster.accelerators, row, strict=True) if n},
            float(speed[i]),
        )
        for i, row in enumerate(devices.tolist())
    ]


class SharedDevices(NamedTuple):
    """The devices of a lease, and the jobs that share them."""

    job_id: str
    accelerators: list[str]
    """accelerator of each device"""
    partners: list[str]
    """ids of the other jobs on these devices"""
    leases: tuple[int, ...]
    """their leases"""
    placement: Consolidation
    """whether the devices are on as few nodes as possible"""


def shared_devices(scheduler: Scheduler[Any], lease: int) -> SharedDevices | None:
    """Return a lease's devices and the jobs that share them; None if it is not open."""
    leases, cluster, ids = scheduler.leases, scheduler.cluster, scheduler.jobs.ids
    if not leases.devices_of(lease):
        return None
    slot = lease & (SLOT_LIMIT - 1)
    devices = (leases.holder == slot).any(axis=0).nonzero()[0]
    here = np.unique(leases.holder[:, devices])
    others = here[(here >= 0) & (here != slot)]
    return SharedDevices(
        ids[int(leases.job[slot])],
        [cluster.accelerators[i] for i in cluster.accelerator_of[devices].tolist()],
        [ids[job] for job in leases.job[others].tolist()],
        tuple(leases.lease[others].tolist()),
        placement_of(cluster, devices),
    )


def speed_key(scheduler: Scheduler[Any], lease: int) -> SpeedKey | None:
    """Return the key of the speed that an open lease measures; None if it has none.

    A job beside several partners has none, nor has a packed one that names no workload. The speed
    of a packed gang counts for the pair in every placement.
    """
    shared = shared_devices(scheduler, lease)
    if shared is None or len(shared.partners) > 1 or len(set(shared.accelerators)) != 1:
        return None
    table = scheduler.jobs
    jobs = [table.jobs[table.number[job_id]] for job_id in (shared.job_id, *shared.partners)]
    if len(jobs) > 1 and not all(job.workload for job in jobs):
        return None
    workload, *partner = [scoped_workload(job.tenant, job.workload, job.id) for job in jobs]
    key = SpeedKey(workload, len(shared.accelerators), shared.accelerators[0])
    return (
        key._replace(partner=partner[0]) if partner else key._replace(placement=shared.placement)
    )


def shared_device_counts(scheduler: Scheduler[Any]) -> dict[str, int]:
    """Return accelerator → devices that several leases share."""
    cluster, leases = scheduler.cluster, scheduler.leases
    shared = np.count_nonzero(leases.holder >= 0, axis=0) > 1
    counts = np.bincount(cluster.accelerator_of[shared], minlength=len(cluster.accelerators))
    return dict(zip(cluster.accelerators, counts.tolist(), strict=True))
