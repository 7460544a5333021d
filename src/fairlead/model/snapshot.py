"""Snapshots: the immutable view of jobs, devices and leases that planners receive."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.job import Job
from fairlead.model.plan import ABSENT, empty_holders
from fairlead.model.profiles import Profiles
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.limits import within_tenant_limits
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.value import value

MIXED = -2
"""in place of an accelerator: devices of several"""
FIRST_S = 600.0
"""seconds that a job of unknown length is expected to need at its start"""


@value
class Measurements:
    """The last measurements of each job; one entry per job, NaN where unknown."""

    at: FloatArray
    """time of the report, minus infinity for none"""
    lease: IntArray
    """lease of the report, ABSENT for none"""
    steps_per_s: FloatArray
    utilization: FloatArray
    memory_gib: FloatArray


@value
class Snapshot:
    """The believed state of jobs and devices when the next plan starts.

    Rows of the job columns are the unfinished jobs, in order of submission; ``job`` numbers
    them through the scheduler's life. Time received is projected to ``starts_at``, as if
    running units continued until then.
    """

    at: float
    starts_at: float
    cluster: Cluster
    capacity: IntArray
    """accelerators → devices that are up and not taken by users outside Fairlead"""
    usable: IntArray
    """these devices, ascending"""
    tenants: Sequence[Tenant]
    profiles: Profiles
    job: IntArray
    profile: IntArray
    arrival_at: FloatArray
    total_steps: FloatArray
    """jobs → steps that it declares; ``length`` for policies"""
    steps: FloatArray
    """jobs → steps made so far, as last reported"""
    deadline_at: FloatArray
    """jobs → time of its deadline; infinite without one"""
    priority: FloatArray
    """jobs → rank among the jobs of its tenant, the highest first"""
    received_s: FloatArray
    """jobs × accelerators → seconds for which the job has held devices of each"""
    on: IntArray
    """jobs → accelerator it holds devices of, ABSENT for none, MIXED for several"""
    lease: IntArray
    """jobs → its (first copy's) lease, ABSENT for none"""
    holds: IntArray
    """lanes × devices → row of the job that holds the device, ABSENT for none"""
    holds_lease: IntArray | None = None
    """lanes × devices → lease that holds the device; None where each job has at most one lease"""
    ids: Sequence[str] = ()
    """job number → id given by its tenant"""
    changes: int = 0
    """counter of events that make an allocation stale: arrivals, ends, lost and returned nodes"""
    speeds: SpeedTable | None = None
    """believed speeds of other placements, partners and gangs"""
    pairs: Sequence[Pair] = ()
    """pairs measured for jobs rather than workloads"""
    isolated_elapsed_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """jobs → seconds that the steps made so far would have taken on an equal split among the
    jobs active then; 0 where omitted or not read"""
    measured: Measurements | None = None
    """measurements of jobs; None without reports or without a mechanism that reads them"""
    room: FloatArray | None = None
    """accelerators → devices to allocate after jobs of higher priority; None: all"""
    precedence: FloatArray = field(default_factory=lambda: np.zeros(0))
    """jobs → priority that counts against the jobs of all tenants; ``priority`` where omitted"""
    restart_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """jobs → seconds without progress when it restarts, as last measured or as those of others;
    0 where omitted or not read"""

    def __post_init__(self) -> None:
        if len(self.isolated_elapsed_s) != len(self.job):
            object.__setattr__(self, "isolated_elapsed_s", np.zeros(len(self.job)))
        if len(self.precedence) != len(self.job):
            object.__setattr__(self, "precedence", self.priority)
        if len(self.restart_s) != len(self.job):
            object.__setattr__(self, "restart_s", np.zeros(len(self.job)))

    @property
    def devices(self) -> FloatArray:
        """accelerators → devices to allocate, of the ``capacity`` that is up."""
        return self.capacity.astype(np.float64) if self.room is None else self.room

    @property
    def tenant(self) -> IntArray:
        """jobs → tenant."""
        return self.profiles.tenant[self.profile]

    def subset(self, rows: IntArray, room: FloatArray) -> "Snapshot":
        """Return the snapshot with some of the jobs and fewer devices to allocate."""
        columns = {name: getattr(self, name)[rows] for name in _PER_JOB_FIELDS}
        return replace(self, room=room, measured=None, **columns)

    @property
    def steps_left(self) -> FloatArray:
        """jobs → remaining steps; never 0, as unfinished jobs only are listed.

        An open-ended job is expected to need as long again as it has used, on its fastest
        accelerator: the mean of heavy-tailed lengths. One that reports no steps has used the time
        for which it has held devices.
        """
        left = np.maximum(self.total_steps - self.steps, 1e-9)
        if self.profiles.open_ended is None:
            return left
        fastest = self.profiles.speed.max(axis=1)[self.profile]
        made = np.where(self.steps > 0.0, self.steps, fastest * self.received_s.sum(axis=1))
        expected = np.maximum(np.maximum(made, fastest * FIRST_S), 1e-9)
        return np.where(self.profiles.open_ended[self.profile], expected, left)

    @property
    def length(self) -> FloatArray:
        """jobs → steps in all, those made and those left."""
        open_ended = self.profiles.open_ended
        if open_ended is None:
            return self.total_steps
        return np.where(open_ended[self.profile], self.steps + self.steps_left, self.total_steps)

    @property
    def elapsed_s(self) -> FloatArray:
        """jobs → seconds since submission."""
        return self.at - self.arrival_at

    @property
    def speed(self) -> FloatArray:
        """jobs × accelerators → believed steps per second of the whole gang."""
        return self.profiles.speed.take(self.profile, axis=0)

    @property
    def gang(self) -> IntArray:
        """jobs → devices needed at once; ``gang_on`` where these differ by accelerator."""
        return self.profiles.gang[self.profile]

    @property
    def gang_on(self) -> IntArray:
        """jobs × accelerators → devices needed at once there; × 1 where all are alike."""
        return self.profiles.gang_on.take(self.profile, axis=0)

    @property
    def gang_speed(self) -> FloatArray:
        """jobs × accelerators → ``speed`` scaled to ``gang`` devices."""
        return self.profiles.gang_speed.take(self.profile, axis=0)

    @property
    def device_s(self) -> FloatArray:
        """jobs → device-seconds held so far."""
        if self.profiles.gangs is None:
            held: FloatArray = self.received_s.sum(axis=1) * self.gang
        else:
            held = (self.received_s * self.gang_on).sum(axis=1)
        return held

    @property
    def has_per_accelerator_gangs(self) -> bool:
        """Whether the gang of some job differs by accelerator."""
        gangs = self.profiles.gangs
        return gangs is not None and bool((gangs[self.profile] != self.gang[:, None]).any())

    def gang_sizes(self, rows: IntArray, wanted: IntArray) -> IntArray:
        """Return rows → devices that these jobs need on the given accelerators."""
        if self.profiles.gangs is None:
            return self.gang[rows]
        return self.profiles.gangs[self.profile[rows], wanted]

    @property
    def weight(self) -> FloatArray:
        """jobs → entitlement."""
        return self.profiles.weight[self.profile]


_PER_JOB_FIELDS = (
    "job",
    "profile",
    "arrival_at",
    "total_steps",
    "steps",
    "deadline_at",
    "priority",
    "precedence",
    "received_s",
    "on",
    "lease",
    "isolated_elapsed_s",
    "restart_s",
)
"""columns of jobs that policies read"""


def gangs_by_accelerator(
    jobs: Sequence[Job | InstanceJob], accelerators: Sequence[str]
) -> IntArray:
    """Return jobs × accelerators → devices needed at once there; × 1 where all are alike."""
    if any(job.gangs for job in jobs):
        gangs = [[job.gang_on(accelerator) for accelerator in accelerators] for job in jobs]
        return np.array(gangs, dtype=np.int64)
    return np.array([job.gang for job in jobs], dtype=np.int64).reshape(-1, 1)


def uneven_gangs(
    jobs: Sequence[Job | InstanceJob], accelerators: Sequence[str]
) -> IntArray | None:
    """Return jobs × accelerators → devices needed at once; None if no job's number depends."""
    return gangs_by_accelerator(jobs, accelerators) if any(job.gangs for job in jobs) else None


def declared_columns(jobs: Sequence[Job], accelerators: Sequence[str]) -> dict[str, Any]:
    """Return the columns of Profiles that are None unless a job declares something."""
    columns = {
        "memory_gib": np.array([job.memory_gib or 0.0 for job in jobs]),
        "max_copies": np.array([job.max_copies or 0 for job in jobs], dtype=np.int64),
        "open_ended": np.array([job.open_ended for job in jobs], dtype=bool),
    }
    declared = {name: column if column.any() else None for name, column in columns.items()}
    return {"gangs": uneven_gangs(jobs, accelerators), **declared}


def snapshot_of(instance: Instance) -> Snapshot:
    """Return the snapshot of an instance at time 0, before any job runs."""
    cluster, jobs = instance.cluster, instance.jobs
    tenant = {t.id: i for i, t in enumerate(instance.tenants)}
    accelerators = cluster.accelerators
    n = len(jobs)
    speed = np.array([[job.speeds.get(name, 0.0) for name in accelerators] for job in jobs])
    profiles = Profiles(
        speed=speed.reshape(n, len(accelerators)),
        gang=np.array([job.gang for job in jobs], dtype=np.int64),
        weight=np.array([job.weight for job in jobs], dtype=np.float64),
        tenant=np.array([tenant[job.tenant] for job in jobs], dtype=np.int64),
        workload=[job.workload for job in jobs],
        gangs=uneven_gangs(jobs, accelerators),
    )
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(len(cluster.accelerator_of)),
        tenants=instance.tenants,
        profiles=within_tenant_limits(profiles, instance.tenants, accelerators),
        job=np.arange(n),
        profile=np.arange(n),
        arrival_at=-np.array([job.elapsed_s for job in jobs], dtype=np.float64),
        total_steps=np.array([job.steps_left or 1.0 for job in jobs], dtype=np.float64),
        steps=np.zeros(n),
        deadline_at=np.array(
            [np.inf if job.deadline_s is None else job.deadline_s for job in jobs]
        ),
        priority=np.array([job.priority for job in jobs], dtype=np.float64),
        received_s=np.zeros((n, len(accelerators))),
        on=np.full(n, ABSENT),
        lease=np.full(n, ABSENT),
        holds=empty_holders(len(cluster.accelerator_of)),
        ids=[job.id for job in jobs],
        pairs=instance.pairs,
        isolated_elapsed_s=np.array([job.isolated_elapsed_s for job in jobs], dtype=np.float64),
    )
