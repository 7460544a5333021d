"""Typed queries of a scheduler's tables, for the live driver and the server.

Callers name jobs by id or number, leases by number and nodes by id; slots and columns stay
inside ``core``.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlead.core.copies import copies_held
from fairlead.core.device_use import (
    SharedDevices,
    shared_device_counts,
    shared_devices,
    speed_key,
)
from fairlead.core.jobs import ON, PROFILE, STATE, JobState
from fairlead.core.scheduler import Scheduler
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Node
from fairlead.model.job import Job
from fairlead.model.lease import SLOT_LIMIT
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import MIXED
from fairlead.model.speeds.believed import BelievedSpeed, believed_pair_speed, believed_speed
from fairlead.model.speeds.key import PLACEMENTS, SpeedKey
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree

__all__ = [
    "HeldPlace",
    "JobState",
    "JobStatus",
    "LeaseStatus",
    "NodeStatus",
    "Queries",
    "TenantStatus",
]

_UNENDED = (JobState.ACTIVE, JobState.HELD)


class JobStatus(NamedTuple):
    """One job and the devices it holds."""

    id: str
    job: Job
    state: JobState
    lease: int | None
    """its lease, or the lease of its first copy"""
    accelerator: str | None
    """accelerator held; ``mixed`` for a gang on several"""
    devices: int
    steps: float
    """steps last reported"""
    saved_steps: float
    """steps in the last checkpoint"""


class LeaseStatus(NamedTuple):
    """One open lease."""

    number: int
    job_id: str
    devices: int
    leaving: bool
    """whether it was preempted"""
    copy: int = 0
    """number of the copy that holds it; 0: the job itself"""
    max_steps: float = math.inf
    """steps after which a copy leaves"""


class HeldPlace(NamedTuple):
    """Devices of a lease of one accelerator on one node."""

    node: str
    accelerator: str
    devices: int


class NodeStatus(NamedTuple):
    """One node and the use of its devices."""

    node: Node
    up: bool
    cordoned: bool
    busy: int
    """devices that leases hold"""
    taken: int
    """devices that users outside Fairlead hold, or that are missing"""


class TenantStatus(NamedTuple):
    """One tenant's jobs, devices and usage."""

    tenant: Tenant
    jobs: int
    """active jobs"""
    entitled: float
    """fraction of the cluster among the tenants with active jobs"""
    devices: int
    """devices held now"""
    device_s: float
    """device-seconds held so far"""


class Queries:
    """Read-only view of a scheduler."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler

    # -- jobs -----------------------------------------------------------------------------------

    @property
    def job_count(self) -> int:
        """Number of jobs ever submitted; job numbers are below it."""
        return len(self._scheduler.jobs)

    @property
    def tenants(self) -> Sequence[Tenant]:
        """All tenants, by index."""
        return self._scheduler.jobs.tenants

    def find_job(self, job_id: str) -> int | None:
        """Return the number of a job; None if there is no such job."""
        return self._scheduler.jobs.number.get(job_id)

    def job_number(self, job_id: str) -> int:
        """Return the number of a job that exists."""
        return self._scheduler.jobs.number[job_id]

    def job_id(self, number: int) -> str:
        """Return the id of a job, empty for a removed one."""
        return self._scheduler.jobs.ids[number]

    def job(self, number: int) -> Job:
        """Return the description of a job."""
        return self._scheduler.jobs.jobs[number]

    def job_state(self, number: int) -> JobState:
        """Return the state of a job."""
        return JobState(self._scheduler.jobs.state.item(number))

    def has_ended(self, number: int) -> bool:
        """Return whether a job is neither active nor held."""
        return self._scheduler.jobs.has_ended(number)

    def is_left_out(self, number: int) -> bool:
        """Return whether an active job took no part in the last plan: plans fail with it."""
        left_out = number in self._scheduler.left_out
        return left_out and self.job_state(number) == JobState.ACTIVE

    @property
    def left_out_count(self) -> int:
        """Number of active jobs that took no part in the last plan."""
        return sum(self.is_left_out(number) for number in self._scheduler.left_out)

    def saved_steps(self, number: int) -> float:
        """Return the steps in a job's last checkpoint."""
        return float(self._scheduler.jobs.saved_steps[number])

    def accelerator_of(self, number: int) -> str | None:
        """Return the accelerator that a job holds; None for none or several."""
        accelerator = self._scheduler.jobs.on.item(number)
        return self._scheduler.cluster.accelerators[accelerator] if accelerator >= 0 else None

    def job_status(self, number: int) -> JobStatus:
        """Return a job's state, lease and progress."""
        jobs = self._scheduler.jobs
        state, _, accelerator, lease = jobs.ints[number].tolist()
        devices = self._scheduler.leases.devices_of(lease)
        if lease == ABSENT and accelerator != ABSENT:
            lease, devices = copies_held(self._scheduler.leases, number)
        name = "mixed" if accelerator == MIXED else None
        if accelerator >= 0:
            name = self._scheduler.cluster.accelerators[accelerator]
        return JobStatus(
            jobs.ids[number],
            jobs.jobs[number],
            JobState(state),
            None if lease == ABSENT else lease,
            name,
            devices,
            jobs.steps.item(number),
            jobs.saved_steps.item(number),
        )

    # -- believed speeds ------------------------------------------------------------------------

    def believed_speed(self, key: SpeedKey, job: Job | None = None) -> BelievedSpeed:
        """Return the believed speed of a workload and gang on an accelerator.

        ``job``: the job whose declared speeds count.
        """
        beliefs, measured = self._scheduler.beliefs, self._scheduler.measured_speeds.by_key
        return believed_speed(beliefs, measured, key, job)

    def measured_elsewhere(self, key: SpeedKey) -> list[float]:
        """Return a workload and gang's measured speeds in the other placement and elsewhere."""
        measured = self._scheduler.measured_speeds.by_key
        names = self._scheduler.cluster.accelerators
        others = [key._replace(placement=placement) for placement in PLACEMENTS]
        others += [key._replace(accelerator=name) for name in names]
        return [measured[o].steps_per_s for o in others if o != key and o in measured]

    def speed_key(self, lease: int) -> SpeedKey | None:
        """Return the key of the speed that an open lease measures; None if it has none."""
        return speed_key(self._scheduler, lease)

    def smaller_accelerators(self, memory_gib: float) -> list[str]:
        """Return the accelerators whose devices have less memory."""
        cluster = self._scheduler.cluster
        return [cluster.accelerators[j] for j in (cluster.memory_gib < memory_gib).nonzero()[0]]

    def job_speeds(self, number: int, gangs: Sequence[int] = ()) -> list[BelievedSpeed]:
        """Return the believed speed of a job on each accelerator that it can and may use.

        ``gangs``: numbers of devices, instead of the one that the job needs.
        """
        scheduler, job = self._scheduler, self.job(number)
        workload = scheduler.jobs.admission.workload_of(job)
        usable = scheduler.jobs.admission.speeds(job) > 0
        names = [
            name for name, may in zip(scheduler.cluster.accelerators, usable, strict=True) if may
        ]
        believed = (
            self.believed_speed(SpeedKey(workload, gang, name), job)
            for name in names
            for gang in gangs or (job.gang_on(name),)
        )
        return [speed for speed in believed if speed.steps_per_s > 0.0]

    def select_jobs(
        self,
        states: Collection[JobState],
        *,
        tenants: BoolArray | None = None,
        running: bool | None = None,
        after: int = 0,
    ) -> IntArray:
        """Return the numbers of jobs in these states, from number ``after`` on.

        ``tenants``: by index, those whose jobs are returned. ``running``: only jobs that hold
        devices, or only jobs that hold none.
        """
        jobs = self._scheduler.jobs
        after = min(after, len(jobs))
        rows = jobs.ints[after : len(jobs)]
        wanted = np.isin(rows[:, STATE], tuple(states))
        if tenants is not None and not tenants.all():
            wanted &= tenants[jobs.profiles.tenant[rows[:, PROFILE]]]
        if running is not None:
            wanted &= (rows[:, ON] != ABSENT) == running  # copies have no lease of the job itself
        numbers: IntArray = after + wanted.nonzero()[0]
        return numbers

    def held_jobs(self) -> list[str]:
        """Return the ids of all held jobs."""
        held = self.select_jobs((JobState.HELD,))
        return [self.job_id(number) for number in held.tolist()]

    def unended_jobs(self) -> list[int]:
        """Return the numbers of all active and held jobs."""
        numbers: list[int] = self.select_jobs(_UNENDED).tolist()
        return numbers

    def stranded_jobs(self) -> list[str]:
        """Return the ids of unended jobs that can run on none of the permanent devices."""
        return [self.job_id(number) for number in self._scheduler.jobs.stranded]

    # -- leases ---------------------------------------------------------------------------------

    @property
    def lease_count(self) -> int:
        """Number of open leases."""
        return len(self._scheduler.leases)

    @property
    def lease_bound(self) -> int:
        """Number above those of all leases that were ever launched."""
        return self._scheduler.leases.next_epoch * SLOT_LIMIT

    @property
    def leaving_count(self) -> int:
        """Number of open leases that were preempted."""
        return self._scheduler.leases.leaving_count

    @property
    def has_packed(self) -> bool:
        """Whether jobs have ever shared devices."""
        return self._scheduler.leases.packed

    def open_leases(self) -> list[LeaseStatus]:
        """Return all open leases."""
        leases, ids = self._scheduler.leases, self._scheduler.jobs.ids
        slots = leases.open
        columns = (leases.lease, leases.job, leases.leaving, leases.copy)
        rows = zip(*(column[slots].tolist() for column in columns), strict=True)
        devices, limits = leases.sizes(slots).tolist(), leases.max_steps
        most = [limits.get(slot, math.inf) for slot in slots.tolist()]
        return [
            LeaseStatus(number, ids[job], devices[i], leaving, copy, most[i])
            for i, (number, job, leaving, copy) in enumerate(rows)
        ]

    def plan_applied_at(self, at: float) -> float:
        """Return the time at which a plan that is made now takes effect: the end of the round."""
        return max(at, self._scheduler.round_end_at or at)

    def pinned_leases(self) -> set[int]:
        """Return the leases that no plan may preempt."""
        leases = self._scheduler.leases
        return {int(leases.lease[slot]) for slot in leases.pinned}

    def shared_devices(self, lease: int) -> SharedDevices | None:
        """Return a lease's devices and the jobs that share them; None if it is not open."""
        return shared_devices(self._scheduler, lease)

    def shared_device_counts(self) -> dict[str, int]:
        """Return accelerator → devices that several leases share."""
        return shared_device_counts(self._scheduler)

    def believed_pair_speed(self, key: SpeedKey) -> float | None:
        """Return the believed speed of a workload beside its partner; None if it is unknown."""
        return believed_pair_speed(self._scheduler.beliefs, key)

    def places(self, devices: Iterable[int]) -> tuple[HeldPlace, ...]:
        """Return nodes and accelerators of devices, in their order."""
        cluster = self._scheduler.cluster
        nodes, accelerators = cluster.node_of, cluster.accelerator_of
        counts: dict[tuple[int, int], int] = {}
        for device in devices:
            key = nodes.item(device), accelerators.item(device)
            counts[key] = counts.get(key, 0) + 1
        return tuple(
            HeldPlace(cluster.nodes[node].id, cluster.accelerators[accelerator], count)
            for (node, accelerator), count in counts.items()
        )

    def devices_of_lease(self, lease: int) -> tuple[int, ...]:
        """Return the devices of a lease; nothing if it is not open."""
        leases = self._scheduler.leases
        if not leases.devices_of(lease):
            return ()
        held = (leases.holder == (lease & (SLOT_LIMIT - 1))).any(axis=0)
        return tuple(held.nonzero()[0].tolist())

    # -- nodes and devices ----------------------------------------------------------------------

    def node_statuses(self) -> list[NodeStatus]:
        """Return all nodes except removed ones."""
        nodes, cluster = self._scheduler.nodes, self._scheduler.cluster
        count = len(cluster.nodes)
        busy = np.bincount(cluster.node_of, ~self._scheduler.leases.free_devices, count)
        taken = np.bincount(cluster.node_of, nodes.taken, count)
        return [
            NodeStatus(node, i not in nodes.down, i in nodes.cordoned, int(busy[i]), int(taken[i]))
            for i, node in enumerate(cluster.nodes)
            if i not in nodes.removed
        ]

    def has_leases_on(self, node: str) -> bool:
        """Return whether a lease holds a device of a node."""
        devices = self._scheduler.nodes.devices_on(node)
        return not bool(self._scheduler.leases.free_devices[devices].all())

    def device_counts(self) -> dict[str, tuple[int, int]]:
        """Return accelerator → devices that are up or may return, and devices held."""
        cluster, permanent = self._scheduler.cluster, self._scheduler.nodes.permanent_devices
        held = cluster.accelerator_of[~self._scheduler.leases.free_devices]
        busy = np.bincount(held, minlength=len(cluster.accelerators))
        counts = zip(permanent.tolist(), busy.tolist(), strict=True)
        return dict(zip(cluster.accelerators, counts, strict=True))

    # -- tenants --------------------------------------------------------------------------------

    def tenant_statuses(self, at: float) -> list[TenantStatus]:
        """Return every tenant's entitlement, devices and usage; nothing before the first job."""
        jobs, leases = self._scheduler.jobs, self._scheduler.leases
        count, tenants = len(jobs), jobs.tenants
        if not count:
            return []
        owner = jobs.profiles.tenant[jobs.ints[:count, PROFILE]]
        slots = leases.open
        device_s = np.bincount(owner, leases.device_s(at).sum(axis=1), len(tenants))
        held = np.bincount(owner[leases.job[slots]], leases.sizes(slots), len(tenants))
        active = np.bincount(owner[jobs.active], minlength=len(tenants))
        share = TenantTree(tenants).entitlements(active > 0)
        share = share / max(float(share.sum()), 1e-12)
        return [
            TenantStatus(tenant, int(active[i]), float(share[i]), int(held[i]), float(device_s[i]))
            for i, tenant in enumerate(tenants)
        ]
