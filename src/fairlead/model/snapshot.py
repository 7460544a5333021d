"""What a decision is made from."""

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.job import Job, Tenant
from fairlead.model.plan import NOBODY, nobody
from fairlead.model.profiles import Profiles
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.limits import within_tenant_limits
from fairlead.model.value import value

MIXED = -2
"""instead of an accelerator: devices of several"""


@value
class Measurements:
    """What jobs have last reported of themselves; one entry a job, NaN where nothing is known."""

    at: FloatArray
    """when it reported, minus infinity for never"""
    lease: IntArray
    """the lease under which it did, NOBODY for none"""
    steps_per_s: FloatArray
    utilization: FloatArray
    memory_gib: FloatArray


@value
class Snapshot:
    """The jobs and devices as the scheduler believes them to be when its plan will start.

    Rows of the job columns are the unfinished jobs, in order of submission; ``job`` numbers
    them through the scheduler's life. Time received is projected to ``starts_at``, as if
    running units went on until then.
    """

    at: float
    starts_at: float
    cluster: Cluster
    capacity: IntArray
    """accelerators → devices that are up and that others do not hold"""
    usable: IntArray
    """the devices that are up and that others do not hold, ascending"""
    tenants: Sequence[Tenant]
    profiles: Profiles
    job: IntArray
    profile: IntArray
    arrival_at: FloatArray
    total_steps: FloatArray
    steps: FloatArray
    """jobs → steps made so far, as far as is known"""
    deadline_at: FloatArray
    """jobs → when it should be done; infinite without a deadline"""
    priority: FloatArray
    received_s: FloatArray
    """jobs × accelerators → seconds for which the job has held devices of each"""
    on: IntArray
    """jobs → accelerator it holds devices of, NOBODY for none, MIXED for several"""
    lease: IntArray
    """jobs → number of its (first copy's) lease, NOBODY for none"""
    holds: IntArray
    """lanes × devices → row of the job that holds it, NOBODY for none"""
    holds_lease: IntArray | None = None
    """lanes × devices → lease that holds it, where some jobs hold several; else None"""
    ids: Sequence[str] = ()
    """job number → the id its tenant knows it by"""
    changes: int = 0
    """counts what makes an allocation stale: arrivals, ends, lost and returned nodes"""
    speeds: SpeedTable | None = None
    """what else is believed about speeds: placements, partners, other gangs"""
    pairs: Sequence[Pair] = ()
    """measured pairs given for jobs rather than workloads"""
    isolated_elapsed_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """jobs → seconds that the steps made so far would have taken on an equal split among the
    jobs of the time; 0 where left out, or where nobody reads progress"""
    measured: Measurements | None = None
    """what jobs measured of themselves; None where none has reported, or nobody reads it"""
    room: FloatArray | None = None
    """accelerators → devices to share out, where others have taken some before; None: all"""

    def __post_init__(self) -> None:
        if len(self.isolated_elapsed_s) != len(self.job):
            object.__setattr__(self, "isolated_elapsed_s", np.zeros(len(self.job)))

    @property
    def devices(self) -> FloatArray:
        """accelerators → devices to share out; how many are up is ``capacity``."""
        return self.capacity.astype(np.float64) if self.room is None else self.room

    @property
    def tenant(self) -> IntArray:
        """jobs → tenant."""
        return self.profiles.tenant[self.profile]

    def only(self, rows: IntArray, room: FloatArray) -> "Snapshot":
        """Return what a policy sees of some of the jobs, with fewer devices to share out."""
        mine = {name: getattr(self, name)[rows] for name in _PER_JOB_FIELDS}
        return replace(self, room=room, measured=None, **mine)

    @property
    def steps_left(self) -> FloatArray:
        """jobs → steps still to make; never 0 while the job is not known to be done."""
        return np.maximum(self.total_steps - self.steps, 1e-9)

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
        """jobs → devices needed at once; where accelerators differ in that see ``gang_on``."""
        return self.profiles.gang[self.profile]

    @property
    def gang_on(self) -> IntArray:
        """Jobs × accelerators, or × 1 where all are alike → devices needed at once there."""
        return self.profiles.gang_on.take(self.profile, axis=0)

    @property
    def gang_speed(self) -> FloatArray:
        """jobs × accelerators → ``speed`` of as many devices as ``gang``, in proportion."""
        return self.profiles.gang_speed.take(self.profile, axis=0)

    @property
    def device_s(self) -> FloatArray:
        """jobs → seconds held so far, each counted with the devices held."""
        if self.profiles.gangs is None:
            held: FloatArray = self.received_s.sum(axis=1) * self.gang
        else:
            held = (self.received_s * self.gang_on).sum(axis=1)
        return held

    @property
    def has_per_accelerator_gangs(self) -> bool:
        """Whether some job needs other numbers of devices on other accelerators."""
        gangs = self.profiles.gangs
        return gangs is not None and bool((gangs[self.profile] != self.gang[:, None]).any())

    def needs(self, rows: IntArray, wanted: IntArray) -> IntArray:
        """Return rows → devices that these jobs need on the accelerators wanted for them."""
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
    "received_s",
    "on",
    "lease",
    "isolated_elapsed_s",
)
"""what a policy reads of jobs; what devices hold is the mechanism's to read"""


def gangs_by_accelerator(
    jobs: Sequence[Job | InstanceJob], accelerators: Sequence[str]
) -> IntArray:
    """Return jobs × accelerators, or × 1 where all are alike → devices needed at once there."""
    if any(job.gangs for job in jobs):
        found = [[job.gang_on(kind) for kind in accelerators] for job in jobs]
        return np.array(found, dtype=np.int64)
    return np.array([job.gang for job in jobs], dtype=np.int64).reshape(-1, 1)


def snapshot_of(instance: Instance) -> Snapshot:
    """Return the snapshot that an instance describes: now is 0, nothing runs yet."""
    cluster, jobs = instance.cluster, instance.jobs
    tenant = {t.id: i for i, t in enumerate(instance.tenants)}
    kinds = cluster.accelerators
    n = len(jobs)
    speed = np.array([[job.speeds.get(kind, 0.0) for kind in kinds] for job in jobs])
    profiles = Profiles(
        speed=speed.reshape(n, len(kinds)),
        gang=np.array([job.gang for job in jobs], dtype=np.int64),
        weight=np.array([job.weight for job in jobs], dtype=np.float64),
        tenant=np.array([tenant[job.tenant] for job in jobs], dtype=np.int64),
        workload=[job.workload for job in jobs],
        gangs=gangs_by_accelerator(jobs, kinds) if any(job.gangs for job in jobs) else None,
    )
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(len(cluster.accelerator_of)),
        tenants=instance.tenants,
        profiles=within_tenant_limits(profiles, instance.tenants, kinds),
        job=np.arange(n),
        profile=np.arange(n),
        arrival_at=-np.array([job.elapsed_s for job in jobs], dtype=np.float64),
        total_steps=np.array([job.steps_left or 1.0 for job in jobs], dtype=np.float64),
        steps=np.zeros(n),
        deadline_at=np.array(
            [np.inf if job.deadline_s is None else job.deadline_s for job in jobs]
        ),
        priority=np.array([job.priority for job in jobs], dtype=np.float64),
        received_s=np.zeros((n, len(kinds))),
        on=np.full(n, NOBODY),
        lease=np.full(n, NOBODY),
        holds=nobody(len(cluster.accelerator_of)),
        ids=[job.id for job in jobs],
        pairs=instance.pairs,
        isolated_elapsed_s=np.array([job.isolated_elapsed_s for job in jobs], dtype=np.float64),
    )
