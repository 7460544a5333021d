"""Table of all jobs ever submitted, by job number."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Measurements, declared_columns
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.admission import Admission, requirements
from fairlead.model.submission.bounds import clamped_weight
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.weight_scope import across_tenants, number_searches

_INTS = STATE, PROFILE, ON, LEASE = range(4)
_NUMBERS = ARRIVAL, TOTAL, STEPS, SAVED, DEADLINE, PRIORITY, ISOLATED = range(7)
FIRST_TIME_COLUMN = len(_NUMBERS)
"""columns of JobTable.ints and .numbers; those from FIRST_TIME_COLUMN on hold the time received"""
_MEASURED = MEASURED_AT, MEASURED_LEASE, SPEED, UTILIZATION, MEMORY = range(5)
_UNMEASURED = (-np.inf, ABSENT, np.nan, np.nan, np.nan)
"""columns of JobTable.measured, and their values before a job's first report"""
_NO_JOB = "\x1f"
"""id, which no job can have, in profiles of jobs that name no workload"""


class JobState(IntEnum):
    """State of a job; only active jobs are scheduled."""

    ACTIVE = 0
    FINISHED = 1
    CANCELLED = 2
    HELD = 3
    FAILED = 4


class JobTable:
    """Columns over all jobs ever submitted; job numbers are given in order of submission."""

    def __init__(self, cluster: Cluster, beliefs: SpeedTable, capabilities: Capabilities) -> None:
        self._cluster = cluster
        self.admission = Admission(cluster, beliefs, cluster.counts, capabilities)
        self.jobs: list[Job] = []
        self.ids: list[str] = []
        """jobs → id, empty for removed jobs"""
        self.number: dict[str, int] = {}
        self.tenants: list[Tenant] = []
        self._tenant_index: dict[str, int] = {}
        self._profile_index: dict[tuple[object, ...], int] = {}
        self._profile_rows: list[tuple[FloatArray, int, float, int, str, int, int]] = []
        self._first_of_profile: list[Job] = []
        self._profiles: Profiles | None = None
        self._outdated = False
        """whether speeds have changed since they were looked up"""
        self._active: IntArray = np.zeros(0, dtype=np.int64)
        self.measured: FloatArray = np.zeros((0, len(_MEASURED)))
        """jobs → last report; shorter than the table if the last jobs made none"""
        self._allocate_columns(
            np.zeros((64, len(_INTS)), dtype=np.int64),
            np.zeros((64, len(_NUMBERS) + len(cluster.accelerators))),
        )

    def __len__(self) -> int:
        return len(self.jobs)

    def extend_cluster(self, cluster: Cluster, permanent: IntArray) -> None:
        """Use a cluster with additional nodes; jobs may run there, too."""
        more = len(cluster.accelerators) - len(self._cluster.accelerators)
        self._cluster = cluster
        unused = np.zeros((len(self.numbers), more))
        self._allocate_columns(self.ints, np.hstack([self.numbers, unused]))
        self.set_permanent_devices(permanent)
        self._look_up_speeds()

    def set_permanent_devices(self, permanent: IntArray) -> None:
        """Reject later jobs that need more than these devices per accelerator."""
        self.admission = self.admission.with_devices(self._cluster, permanent)

    def set_speeds(self, beliefs: SpeedTable, capabilities: Capabilities) -> None:
        """Use other speeds; raise InputError if a job that has not ended could never run.

        A job that already could not, because its devices were removed, stays queued if it could
        run on equal devices.
        """
        stranded = set(self.stranded)
        admission = self.admission.with_speeds(beliefs, capabilities)
        for number in self._not_ended:
            job = self.jobs[number]
            check = admission.check_on_all_nodes if number in stranded else admission.check
            try:
                check(job)
            except InputError as error:
                if repr(job.id) in error.problem:
                    raise
                problem = f"job {job.id!r}: {error.problem}"
                raise InputError(problem, fix=error.fix, field=error.field) from None
        self.admission = admission
        self._look_up_speeds()

    def use_speeds(self, beliefs: SpeedTable) -> None:
        """Use speeds that have changed by measurements, for the jobs in the table, too."""
        self.admission = self.admission.with_speeds(beliefs, self.admission.capabilities)
        self._profiles, self._outdated = None, True

    def separate_profile(self, job_id: str) -> None:
        """Give a job that names no workload its own profile, with the speed it measured."""
        number = self.number.get(job_id)
        if number is not None:
            self.ints[number, PROFILE] = self._intern_profile(self.jobs[number])

    @property
    def stranded(self) -> list[int]:
        """The jobs that have not ended and can run on none of the permanent devices."""
        admits = self.admission.admits
        return [number for number in self._not_ended if not admits(self.jobs[number])]

    @property
    def _not_ended(self) -> list[int]:
        states = self.state[: len(self)]
        numbers: list[int] = (
            np.isin(states, (JobState.ACTIVE, JobState.HELD)).nonzero()[0].tolist()
        )
        return numbers

    def _look_up_speeds(self) -> None:
        self._profile_rows = [
            (self.admission.speeds(job), *row[1:])
            for job, row in zip(self._first_of_profile, self._profile_rows, strict=True)
        ]
        self._profiles, self._outdated = None, False

    def add(self, job: Job) -> int:
        """Add an active job and return its number; reject a job that could never run."""
        if job.id in self.number:
            raise InputError(f"job {job.id!r} exists", fix="give every job its own id", field="id")
        self.admission.check(job)
        number = self._append(job, job.id)
        self._active = np.append(self._active, number)
        return number

    def _append(self, job: Job, job_id: str) -> int:
        profile = self._intern_profile(job)
        number = len(self.jobs)
        if number == len(self.state):
            self._grow()
        self.jobs.append(job)
        self.ids.append(job_id)
        if job_id:
            self.number[job_id] = number
        self.ints[number] = (JobState.ACTIVE, profile, ABSENT, ABSENT)
        row = self.numbers[number]
        row[ARRIVAL] = job.arrival_at
        row[TOTAL] = job.total_steps
        row[DEADLINE] = np.inf if job.deadline_s is None else job.arrival_at + job.deadline_s
        row[PRIORITY] = job.priority
        return number

    def find(self, job_id: str) -> int:
        """Return the number of a job that has not ended."""
        number = self.number.get(job_id)
        if number is None:
            raise ProtocolError(f"unknown job {job_id!r}")
        if self.has_ended(number):
            raise ProtocolError(f"job {job_id!r} has already ended")
        return number

    def has_ended(self, number: int) -> bool:
        """Return whether a job is neither active nor held."""
        return self.state.item(number) not in (JobState.ACTIVE, JobState.HELD)

    def deactivate(self, number: int, state: JobState) -> None:
        """End a job, or hold it until it is released."""
        if self.has_ended(number):
            raise ProtocolError(f"job {self.ids[number]!r} has already ended")
        self.state[number] = state
        self._active = self._active[self._active != number]

    def release(self, number: int) -> None:
        """Make a held job active again, at its old position."""
        if self.state[number] == JobState.HELD:
            self.state[number] = JobState.ACTIVE
            self._active = np.insert(self._active, np.searchsorted(self._active, number), number)

    def continue_from(self, number: int, steps: float) -> None:
        """Count steps that a job did not make itself: those of a checkpoint it starts from."""
        if steps > self.steps[number]:
            self.steps[number] = min(steps, self.numbers[number, TOTAL])
            self.saved_steps[number] = self.steps[number]

    def change(self, job: Job) -> None:
        """Replace a job's description; its progress stays."""
        number = self.find(job.id)
        before = self.jobs[number]
        if (job.workload, job.total_steps) != (before.workload, before.total_steps):
            raise ProtocolError(f"job {job.id!r} cannot change its workload or steps")
        if requirements(job) != requirements(before):
            self.admission.check(job)
        self.ints[number, PROFILE] = self._intern_profile(job)
        self.jobs[number] = job
        row = self.numbers[number]
        row[DEADLINE] = np.inf if job.deadline_s is None else job.arrival_at + job.deadline_s
        row[PRIORITY] = job.priority

    def remove(self, job_ids: Sequence[str]) -> None:
        """Drop the descriptions of ended jobs; their rows stay, so that no number changes."""
        numbers = [self.number[job_id] for job_id in job_ids if job_id in self.number]
        if not all(map(self.has_ended, numbers)):
            raise ProtocolError(f"not all of these jobs have ended: {', '.join(job_ids)}")
        self.ids = self.ids.copy()  # snapshots in use keep theirs
        for number in numbers:
            del self.number[self.ids[number]]
            self.ids[number] = ""
            self.jobs[number] = self._first_of_profile[self.ints.item(number, PROFILE)]

    def set_tenant(self, tenant: Tenant) -> None:
        """Add a tenant, or replace the tenant with the same id."""
        index = self._tenant_index.setdefault(tenant.id, len(self.tenants))
        weight = clamped_weight(tenant.weight)
        known = tenant if weight == tenant.weight else replace(tenant, weight=weight)
        self.tenants[index : index + 1] = [known]

    def advance(self, job: IntArray, steps: FloatArray, capacity: IntArray) -> None:
        """Record jobs' total steps, and the time these would have taken under an equal split.

        The equal split is among the jobs active now, for the steps since the last report;
        reports come at least once a round. Lost steps are subtracted again.
        """
        gangs, speed = self.profiles.on_all_devices(capacity)
        profile = self.ints[job, PROFILE]
        # One of n jobs runs on 1 / n of all devices, and never more than all the time.
        alone, steps_per_s = np.maximum(gangs[profile], len(self._active)), speed[profile]
        per_step = np.divide(
            alone, steps_per_s, out=np.zeros_like(steps_per_s), where=steps_per_s > 0
        )
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
        if self._outdated:
            self._look_up_speeds()
        if self._profiles is None and not self._profile_rows:
            none = np.zeros(0, dtype=np.int64)
            columns = len(self._cluster.accelerators)
            self._profiles = Profiles(np.zeros((0, columns)), none, np.zeros(0), none)
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
                np.array([self.admission.member_speeds(job) for job in self._first_of_profile])
                if self.admission.capabilities.mixed_gangs
                else None,
                across_tenants=across_tenants(self._first_of_profile),
                search=number_searches(self._first_of_profile),
                **declared_columns(self._first_of_profile, self._cluster.accelerators),
            )
        return self._profiles

    def store_measurements(self, jobs: IntArray, reports: FloatArray) -> None:
        """Replace the last reports of jobs; a row: at, lease, speed, utilisation, memory."""
        last, known = int(jobs.max()), len(self.measured)
        if last >= known:
            # A power of two: the size does not depend on the sequence of reports.
            more = np.full(((1 << last.bit_length()) - known, len(_MEASURED)), _UNMEASURED)
            self.measured = np.concatenate([self.measured, more])
        self.measured[jobs] = reports

    def measurements(self, jobs: IntArray) -> Measurements | None:
        """Return the last reports of these jobs; None if no job has ever reported."""
        if not len(self.measured):
            return None
        reports = np.full((len(jobs), len(_MEASURED)), _UNMEASURED)
        known = jobs < len(self.measured)
        reports[known] = self.measured[jobs[known]]
        lease = reports[:, MEASURED_LEASE].astype(np.int64)
        return Measurements(
            reports[:, MEASURED_AT],
            lease,
            reports[:, SPEED],
            reports[:, UTILIZATION],
            reports[:, MEMORY],
        )

    def gang_on(self, number: int, accelerator: int) -> int:
        """Return the devices a job needs at once on an accelerator; its gang if mixed."""
        job, names = self.jobs[number], self._cluster.accelerators
        return job.gang_on(names[accelerator]) if accelerator >= 0 else job.gang

    def _intern_profile(self, job: Job) -> int:
        known = self._profile_index.get(self._profile_key(job))
        return self._add_profile(job) if known is None else known

    def _profile_key(self, job: Job) -> tuple[object, ...]:
        """Return all properties of a job that its profile has; add its tenant if it is new."""
        if job.tenant not in self._tenant_index:
            self.set_tenant(Tenant(job.tenant))
        workload = job.workload or self.admission.workload_of(job)
        shape = (workload, job.gang, *_elastic_gangs(job))
        gangs = (tuple(job.gangs.items()), job.max_copies, job.open_ended)
        numbers = (job.weight, job.across_tenants, tuple(sorted(job.declared_speeds.items())))
        tenant = self._tenant_index[job.tenant]
        return (*shape, gangs, *numbers, tenant, job.multijob, job.accelerators, job.memory_gib)

    def _add_profile(self, job: Job) -> int:
        """Add the profile of a job and return its number."""
        key, number = self._profile_key(job), len(self._profile_rows)
        self._profile_index.setdefault(key, number)
        if not self.admission.workload_of(job):
            # Later the first job may measure its own speed, which is not that of the others.
            job = replace(job, id=_NO_JOB)
        tenant, weight = self._tenant_index[job.tenant], clamped_weight(job.weight)
        speed = self.admission.speeds(job)
        row = (speed, job.gang, weight, tenant, job.workload, *_elastic_gangs(job))
        self._first_of_profile.append(job)
        self._profile_rows.append(row)
        self._profiles = None
        return number

    def _grow(self) -> None:
        old = (self.ints, self.numbers)
        self._allocate_columns(*(np.concatenate([table, np.zeros_like(table)]) for table in old))

    def _allocate_columns(self, ints: IntArray, numbers: FloatArray) -> None:
        self.ints = ints
        self.numbers = numbers
        """all columns side by side, so that a snapshot copies its rows at once"""
        self.state = ints[:, STATE]
        self.on = ints[:, ON]
        """accelerator held, ABSENT for none"""
        self.lease = ints[:, LEASE]
        """the first copy's lease, ABSENT for none"""
        self.steps = numbers[:, STEPS]
        """steps last reported, as policies see them"""
        self.saved_steps = numbers[:, SAVED]
        """steps in the last checkpoint"""
        self.received_s = numbers[:, FIRST_TIME_COLUMN:]

    def saved(self) -> dict[str, object]:
        """Return the table's content, for ``restore``."""
        return {
            "jobs": [job if id_ else None for job, id_ in zip(self.jobs, self.ids, strict=True)],
            "tenants": self.tenants,
            "first_of_profile": self._first_of_profile,
            **self.columns(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the content that ``saved`` returned."""
        for tenant in saved["tenants"]:
            self.set_tenant(tenant)
        for job in saved["first_of_profile"]:
            self._add_profile(job)  # in the order of their numbers
        for job, profile in zip(saved["jobs"], saved["ints"][:, PROFILE].tolist(), strict=True):
            self._append(job or self._first_of_profile[profile], job.id if job else "")
        count = len(self)
        self.ints[:count] = saved["ints"]
        self.numbers[:count] = saved["numbers"]
        self.measured = saved.get("measured", self.measured)
        self._active = (self.state[:count] == JobState.ACTIVE).nonzero()[0]

    def columns(self) -> dict[str, IntArray | FloatArray]:
        """Return the columns, up to the last job."""
        columns: dict[str, IntArray | FloatArray] = {}
        columns["ints"] = self.ints[: len(self)]
        columns["numbers"] = self.numbers[: len(self)]
        if len(self.measured):
            columns["measured"] = self.measured
        return columns


def _elastic_gangs(job: Job) -> tuple[int, int]:
    """Return the least and the most devices of a job's gang."""
    return job.min_gang or job.gang, job.max_gang or job.gang
