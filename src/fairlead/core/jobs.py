"""The scheduler's table of jobs, by job number."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job, Tenant, per_accelerator_gangs_error
from fairlead.model.plan import NOBODY
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Measurements, gangs_by_accelerator
from fairlead.model.speeds.table import SpeedTable

_INTS = STATE, PROFILE, ON, LEASE = range(4)
_NUMBERS = ARRIVAL, TOTAL, STEPS, SAVED, DEADLINE, PRIORITY, ISOLATED = range(7)
FIRST_TIME_COLUMN = len(_NUMBERS)
"""columns of JobTable.ints and .numbers, in these from FIRST_TIME_COLUMN on the time received"""
_MEASURED = MEASURED_AT, MEASURED_LEASE, SPEED, UTILIZATION, MEMORY = range(5)
_UNMEASURED = (-np.inf, NOBODY, np.nan, np.nan, np.nan)
"""columns of JobTable.measured, and what they hold before a job's first report"""


class JobState(IntEnum):
    """Where a job stands; only active jobs are scheduled."""

    ACTIVE = 0
    FINISHED = 1
    CANCELLED = 2
    HELD = 3
    FAILED = 4


class JobTable:
    """Columns over all jobs ever submitted; job numbers are given in order of submission."""

    def __init__(
        self,
        cluster: Cluster,
        beliefs: SpeedTable,
        *,
        mixes: bool = False,
        alternatives: bool = False,
    ) -> None:
        """Take in jobs for a cluster.

        ``mixes``: gangs may have several accelerators' devices. ``alternatives``: the number of
        devices that a job needs may depend on the accelerator.
        """
        self._cluster = cluster
        self._allows_per_accelerator_gangs = alternatives
        self._allows_mixed_gangs = mixes
        self._beliefs = beliefs
        self._permanent: IntArray = cluster.counts
        self._can_use: set[tuple[object, ...]] = set()
        """what is known of jobs that can run on the lasting devices"""
        self.jobs: list[Job] = []
        self.ids: list[str] = []
        self.number: dict[str, int] = {}
        self.tenants: list[Tenant] = []
        self._tenant_index: dict[str, int] = {}
        self._profile_index: dict[tuple[object, ...], int] = {}
        self._profile_rows: list[tuple[FloatArray, int, float, int, str, int, int]] = []
        self._first_of_profile: list[Job] = []
        self._profiles: Profiles | None = None
        self._active: IntArray = np.zeros(0, dtype=np.int64)
        self.measured: FloatArray = np.zeros((0, len(_MEASURED)))
        """jobs → its last report; shorter than the table where the last jobs made none"""
        self._lay_out(
            np.zeros((64, len(_INTS)), dtype=np.int64),
            np.zeros((64, len(_NUMBERS) + len(cluster.accelerators))),
        )

    def __len__(self) -> int:
        return len(self.jobs)

    def use(self, cluster: Cluster, lasting: IntArray) -> None:
        """Go on with a cluster that has further nodes; jobs may run there, too."""
        more = len(cluster.accelerators) - len(self._cluster.accelerators)
        self._cluster = cluster
        unused = np.zeros((len(self.numbers), more))
        self._lay_out(self.ints, np.hstack([self.numbers, unused]))
        self._look_up_speeds()
        self.expect(lasting)

    def expect(self, lasting: IntArray) -> None:
        """Refuse jobs from now on that need more than these devices of each accelerator."""
        self._permanent = lasting
        self._can_use.clear()

    def believe(self, beliefs: SpeedTable, *, mixes: bool, alternatives: bool) -> None:
        """Go on with other speeds; refuse them if a job that has not ended could never run.

        One that already could not, as its devices were removed, goes on waiting if it could run
        when such are back.
        """
        before = self._beliefs, self._allows_mixed_gangs, self._allows_per_accelerator_gangs
        stranded = set(self.stranded)
        self._beliefs, self._allows_mixed_gangs, self._allows_per_accelerator_gangs = (
            beliefs,
            mixes,
            alternatives,
        )
        self._can_use.clear()
        try:
            for number in self._not_ended:
                if number in stranded:
                    self._require_runnable(self.jobs[number], self._cluster.counts)
                else:
                    self._check_runs(self.jobs[number])
        except InputError:
            self._beliefs, self._allows_mixed_gangs, self._allows_per_accelerator_gangs = before
            self._can_use.clear()
            raise
        self._look_up_speeds()

    @property
    def stranded(self) -> list[int]:
        """The jobs that have not ended and can run on none of the lasting devices."""
        return [number for number in self._not_ended if not self._runs(self.jobs[number])]

    @property
    def _not_ended(self) -> list[int]:
        found = np.isin(self.state[: len(self)], (JobState.ACTIVE, JobState.HELD)).nonzero()[0]
        return list(found.tolist())

    def _look_up_speeds(self) -> None:
        self._profile_rows = [
            (self._speed_or_zero(job), *row[1:])
            for job, row in zip(self._first_of_profile, self._profile_rows, strict=True)
        ]
        self._profiles = None

    def require_devices(self, asked: Mapping[str, int]) -> None:
        """Raise InputError for the first accelerator of which there are never so many devices."""
        there = dict(zip(self._cluster.accelerators, self._permanent.tolist(), strict=True))
        for kind, count in asked.items():
            if count > there.get(kind, 0):
                raise InputError(
                    f"{kind}={count} can never run: the cluster has {there.get(kind, 0)} {kind}",
                    fix=f"of {', '.join(there)} give those it is to use, with numbers that fit",
                    field="accelerators",
                )

    def add(self, job: Job) -> int:
        """Add an active job and return its number; refuse one that could never run."""
        if job.id in self.number:
            raise InputError(f"job {job.id!r} exists", fix="give every job its own id", field="id")
        self._check_runs(job)
        return self._append(job)

    def _append(self, job: Job) -> int:
        profile = self._intern_profile(job)
        number = len(self.jobs)
        if number == len(self.state):
            self._grow()
        self.jobs.append(job)
        self.ids.append(job.id)
        self.number[job.id] = number
        self.ints[number] = (JobState.ACTIVE, profile, NOBODY, NOBODY)
        row = self.numbers[number]
        row[ARRIVAL] = job.arrival_at
        row[TOTAL] = job.total_steps
        row[DEADLINE] = np.inf if job.deadline_s is None else job.arrival_at + job.deadline_s
        row[PRIORITY] = job.priority
        self._active = np.append(self._active, number)
        return number

    def find(self, job_id: str) -> int:
        """Return the number of a job that has not ended."""
        number = self.number.get(job_id)
        if number is None:
            raise ProtocolError(f"there is no job {job_id!r}")
        if self.has_ended(number):
            raise ProtocolError(f"job {job_id!r} has already ended")
        return number

    def has_ended(self, number: int) -> bool:
        """Tell whether a job is neither active nor held."""
        return self.state.item(number) not in (JobState.ACTIVE, JobState.HELD)

    def end(self, number: int, state: JobState) -> None:
        """Take a job out of the active ones, for good or until it is released."""
        if self.has_ended(number):
            raise ProtocolError(f"job {self.ids[number]!r} has already ended")
        self.state[number] = state
        self._active = self._active[self._active != number]

    def release(self, number: int) -> None:
        """Make a held job active again, in its old place."""
        if self.state[number] == JobState.HELD:
            self.state[number] = JobState.ACTIVE
            self._active = np.insert(self._active, np.searchsorted(self._active, number), number)

    def change(self, job: Job) -> None:
        """Replace what a tenant has said of a job; its progress stays."""
        number = self.find(job.id)
        before = self.jobs[number]
        if (job.workload, job.total_steps) != (before.workload, before.total_steps):
            raise ProtocolError(f"job {job.id!r} cannot change its workload or steps")
        if _needs(job) != _needs(before):
            self._check_runs(job)
        self.ints[number, PROFILE] = self._intern_profile(job)
        self.jobs[number] = job
        row = self.numbers[number]
        row[DEADLINE] = np.inf if job.deadline_s is None else job.arrival_at + job.deadline_s
        row[PRIORITY] = job.priority

    def set_tenant(self, tenant: Tenant) -> None:
        """Add a tenant or replace the one with its id."""
        index = self._tenant_index.setdefault(tenant.id, len(self.tenants))
        self.tenants[index : index + 1] = [tenant]

    def advance(self, job: IntArray, steps: FloatArray, capacity: IntArray) -> None:
        """Note that jobs have made so many steps in all, and what an equal split would have taken.

        That is counted with as many jobs as are active now, for the steps made since the last
        report; reports come at least once a round. Steps that were lost are taken back.
        """
        speed = self.profiles.speed[self.ints[job, PROFILE]]
        gang = self.profiles.gang_on[self.ints[job, PROFILE]]
        part = np.where((speed > 0) & (gang <= capacity), capacity / gang, 0.0)
        # One of n jobs runs on part / n of each accelerator, and for all of its time at most.
        alone = np.maximum(part.sum(axis=1), len(self._active))
        pace = (part * speed).sum(axis=1)
        per_step = np.divide(alone, pace, out=np.zeros_like(pace), where=pace > 0)
        isolated = self.numbers[job, ISOLATED] + (steps - self.steps[job]) * per_step
        self.numbers[job, ISOLATED] = np.maximum(isolated, 0.0)
        self.steps[job] = steps

    @property
    def active(self) -> IntArray:
        """The numbers of the active jobs, ascending."""
        return self._active

    @property
    def profiles(self) -> Profiles:
        """The profiles of all jobs so far."""
        if self._profiles is None and not self._profile_rows:
            none = np.zeros(0, dtype=np.int64)
            kinds = len(self._cluster.accelerators)
            self._profiles = Profiles(np.zeros((0, kinds)), none, np.zeros(0), none)
        if self._profiles is None:
            speed, gang, weight, tenant, workload, least, most = zip(
                *self._profile_rows, strict=True
            )
            elastic = (least, most) != (gang, gang)
            self._profiles = Profiles(
                np.array(speed),
                np.array(gang),
                np.array(weight),
                np.array(tenant),
                workload,
                np.array(least) if elastic else None,
                np.array(most) if elastic else None,
                np.array([self._members(job) for job in self._first_of_profile])
                if self._allows_mixed_gangs
                else None,
                self._gangs(),
            )
        return self._profiles

    def store_measurement(
        self, job: int, report: tuple[float, float, float, float, float]
    ) -> None:
        """Keep a job's report (at, lease, speed, utilisation, memory) until its next one."""
        missing = job + 1 - len(self.measured)
        if missing > 0:
            more = np.full((max(missing, len(self.measured)), len(_MEASURED)), _UNMEASURED)
            self.measured = np.concatenate([self.measured, more])
        self.measured[job] = report

    def measurements(self, jobs: IntArray) -> Measurements | None:
        """Return what these jobs last reported; None where no job ever has."""
        if not len(self.measured):
            return None
        found = np.full((len(jobs), len(_MEASURED)), _UNMEASURED)
        known = jobs < len(self.measured)
        found[known] = self.measured[jobs[known]]
        lease = found[:, MEASURED_LEASE].astype(np.int64)
        return Measurements(
            found[:, MEASURED_AT],
            lease,
            found[:, SPEED],
            found[:, UTILIZATION],
            found[:, MEMORY],
        )

    def _fitting(self, job: Job, counts: IntArray) -> FloatArray:
        """Return accelerators → believed speed of the job where it may and can run, else 0."""
        speed = self._beliefs.row_of(job, self._cluster.accelerators)
        enough = counts >= gangs_by_accelerator([job], self._cluster.accelerators)[0]
        return np.where(self._allowed(job) & enough, speed, 0.0)

    def gang_on(self, job: int, kind: int) -> int:
        """Return how many devices a job needs at once on an accelerator; its gang for several."""
        found = self.jobs[job]
        return found.gang_on(self._cluster.accelerators[kind]) if kind >= 0 else found.gang

    def _gangs(self) -> IntArray | None:
        """Return profiles × accelerators → devices needed at once, None where all are alike."""
        if not any(job.gangs for job in self._first_of_profile):
            return None
        return gangs_by_accelerator(self._first_of_profile, self._cluster.accelerators)

    def _speed_or_zero(self, job: Job) -> FloatArray:
        """Return the same for what there is, 0 for a job that ended under another speeds table."""
        try:
            return self._fitting(job, self._cluster.counts)
        except InputError:
            return np.zeros(len(self._cluster.accelerators))

    def _members(self, job: Job) -> FloatArray:
        """Return accelerators → believed speed of a gang with this one as its slowest member."""
        kinds = self._cluster.accelerators
        speed = [self._beliefs.member_speed(job.workload, job.gang, kind) for kind in kinds]
        return np.where(self._allowed(job), speed, 0.0)

    def _allowed(self, job: Job) -> BoolArray:
        """Return accelerators → the job may use it, and it has the memory."""
        allowed = self._named(job)
        if job.memory_gib is not None:
            allowed &= self._cluster.memory_gib >= job.memory_gib
        return allowed

    def _named(self, job: Job) -> BoolArray:
        """Return accelerators → the job may use it."""
        kinds = self._cluster.accelerators
        if job.accelerators is None:
            return np.ones(len(kinds), dtype=bool)
        return np.isin(kinds, job.accelerators)

    def _can_run(self, job: Job, devices: IntArray) -> bool:
        if self._fitting(job, devices).any():
            return True
        if not self._allows_mixed_gangs:
            return False
        return int(devices[self._members(job) > 0.0].sum()) >= job.gang

    def _runs(self, job: Job) -> bool:
        """Tell whether a job can run on the lasting devices."""
        try:
            self._check_runs(job)
        except InputError:
            return False
        return True

    def _check_runs(self, job: Job) -> None:
        needs = _needs(job)
        if needs not in self._can_use:
            self._require_runnable(job, self._permanent)
            self._can_use.add(needs)

    def _require_runnable(self, job: Job, devices: IntArray) -> None:
        """Raise InputError unless a job can run on so many devices of each accelerator."""
        if job.gangs and not self._allows_per_accelerator_gangs:
            raise per_accelerator_gangs_error(job.id)
        if not self._can_run(job, devices):
            raise self._why_unrunnable(job, devices)

    def _why_unrunnable(self, job: Job, devices: IntArray) -> InputError:
        """Return what keeps a job from ever running: the first of its fields that does."""
        counted = zip(self._cluster.accelerators, devices.tolist(), strict=True)
        there = [kind for kind, count in counted if count]
        told = f"job {job.id!r} (workload {job.workload!r}, gang {job.gang})"
        if job.accelerators is not None and not set(job.accelerators) & set(there):
            asked = ", ".join(map(repr, job.accelerators))
            return InputError(
                f"{told} may use only {asked}, which the cluster does not have",
                fix=f"choose among {', '.join(there)}",
                field="accelerators",
            )
        if job.memory_gib is not None and not self._allowed(job).any():
            return InputError(
                f"{told} needs {job.memory_gib:g} GiB of a device, of those it may use the largest"
                f" has {float(self._cluster.memory_gib[self._named(job)].max()):g}",
                fix="ask for less memory or allow other accelerators",
                field="memory_gib",
            )
        return InputError(
            f"{told} can run on none of the cluster's accelerators",
            fix="check its gang and accelerators against the cluster and the speeds",
            field="gang",
        )

    def _intern_profile(self, job: Job) -> int:
        tenant = self._tenant_index.get(job.tenant)
        if tenant is None:
            self.set_tenant(Tenant(job.tenant))
            tenant = self._tenant_index[job.tenant]
        elastic = (job.min_gang or job.gang, job.max_gang or job.gang)
        shape = (job.workload, job.gang, *elastic)
        gangs = tuple(job.gangs.items())
        key = (*shape, gangs, job.weight, tenant, job.accelerators, job.memory_gib)
        known = self._profile_index.get(key)
        if known is None:
            row = self._speed_or_zero(job)
            known = self._profile_index[key] = len(self._profile_rows)
            self._first_of_profile.append(job)
            self._profile_rows.append((row, job.gang, job.weight, tenant, job.workload, *elastic))
            self._profiles = None
        return known

    def _grow(self) -> None:
        old = (self.ints, self.numbers)
        self._lay_out(*(np.concatenate([table, np.zeros_like(table)]) for table in old))

    def _lay_out(self, ints: IntArray, numbers: FloatArray) -> None:
        self.ints = ints
        self.numbers = numbers
        """all columns side by side, so that a snapshot copies its rows at once"""
        self.state = ints[:, STATE]
        self.on = ints[:, ON]
        """accelerator held, NOBODY for none"""
        self.lease = ints[:, LEASE]
        """the first copy's lease, NOBODY for none"""
        self.steps = numbers[:, STEPS]
        """steps made as last reported: what policies see"""
        self.saved_steps = numbers[:, SAVED]
        """steps held by a checkpoint: what survives"""
        self.received_s = numbers[:, FIRST_TIME_COLUMN:]

    def saved(self) -> dict[str, object]:
        """Return what a new table needs to become this one."""
        return {
            "jobs": self.jobs,
            "tenants": self.tenants,
            "first_of_profile": self._first_of_profile,
            **self.columns(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Become the table that gave ``saved``."""
        for tenant in saved["tenants"]:
            self.set_tenant(tenant)
        for job in saved["first_of_profile"]:
            self._intern_profile(job)  # in the order in which profiles were numbered
        for job in saved["jobs"]:
            self._append(job)
        count = len(self)
        self.ints[:count] = saved["ints"]
        self.numbers[:count] = saved["numbers"]
        self.measured = saved.get("measured", self.measured)
        self._active = (self.state[:count] == JobState.ACTIVE).nonzero()[0]

    def columns(self) -> dict[str, IntArray | FloatArray]:
        """Return the columns that make up the table's state, up to the last job."""
        columns: dict[str, IntArray | FloatArray] = {
            "ints": self.ints[: len(self)],
            "numbers": self.numbers[: len(self)],
        }
        if len(self.measured):
            columns["measured"] = self.measured
        return columns


def _needs(job: Job) -> tuple[object, ...]:
    """Return all that decides where a job can run."""
    gangs = tuple(job.gangs.items())
    return (job.workload, job.gang, gangs, job.accelerators, job.memory_gib)
