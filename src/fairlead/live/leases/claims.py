"""Claims of jobs: the steps and speeds that they report, bounded by what is possible.

A job reports its own steps and speed, so both are claims. On emulated accelerators the true speed
is known. On real ones a claim is compared with the fastest believed speed of the workload, with a
wide tolerance because beliefs may be wrong. An unknown workload has only the limit of all jobs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from fairlead.core.queries import Queries
from fairlead.live.accounting import JobCounters
from fairlead.live.job_spec import JobSpec
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model.speeds.elastic import speed_of_size
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.speeds.text import speed_text

log = structlog.get_logger("fairlead.live")

_MAX_STEPS_PER_S = 1e6
"""speed above which no job runs: the job library alone takes longer for a step"""
_EMULATED_TOLERANCE = 3.0
"""tolerance on emulated accelerators: after a delay of a second, steps are made up for"""
_BELIEVED_TOLERANCE = 10.0
_DELAY_S = 15.0
"""time that a report may be under way"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """Limits of the claims of one lease."""

    steps: float = math.inf
    """steps that the job was submitted with"""
    steps_per_s: float = math.inf
    """on the devices of the lease"""
    saved_steps: float = 0.0
    """steps in the checkpoint, as known when the lease began"""
    job_steps_per_s: float = math.inf
    """on the devices on which the job runs fastest"""
    job_started_at: float = -math.inf


@dataclass(slots=True)
class Suspicion:
    """Reports of a job that cannot be true."""

    reports: int
    problem: str
    """the first of them under its newest lease"""


class SuspiciousReports:
    """Counts reports that cannot be true, since the start of the server."""

    def __init__(self) -> None:
        self.total = 0
        self.by_job: dict[str, Suspicion] = {}

    def record(self, job: str, lease: int, problem: str | None) -> None:
        """Count a report; log the problem unless it is None, as for later reports of a lease."""
        self.total += 1
        suspicion = self.by_job.setdefault(job, Suspicion(0, ""))
        suspicion.reports += 1
        if problem is not None:
            suspicion.problem = problem
            log.warning("lease.suspicious", job=job, lease=lease, problem=problem)


@dataclass(slots=True)
class Claims:
    """The claims of one lease."""

    limits: ClaimLimits = field(default_factory=ClaimLimits)
    reports: SuspiciousReports = field(default_factory=SuspiciousReports)
    job: str = ""
    lease: int = 0
    _first: tuple[float, float] | None = None
    """time and steps of the first report"""
    _known: bool = False
    """whether the log names a suspicious report of this lease"""

    def possible_steps(self, at: float) -> float:
        """Return the most steps that the job can have made.

        The first report of a lease says from where the job continues. The last lease may have made
        steps that the server does not know of, so this is bounded by the age of the job.
        """
        limits = self.limits
        if self._first is None:
            age_s = at - limits.job_started_at + _DELAY_S
            steps = max(limits.saved_steps, limits.job_steps_per_s * age_s)
        else:
            first_at, first_steps = self._first
            steps = first_steps + limits.steps_per_s * (at - first_at + _DELAY_S) + 1.0
        return min(steps, limits.steps)

    def accept_steps(self, at: float, claimed: float) -> float:
        """Return the claimed steps, at most the possible ones; count a claim above these."""
        possible = self.possible_steps(at)
        if claimed > possible:
            self._suspect(f"reports {claimed:.6g} steps, at most {possible:.6g} are possible")
        steps = min(claimed, possible)
        if self._first is None:
            self._first = at, steps
        return steps

    def check_speed(self, claimed: float) -> None:
        """Count a claimed speed that is not possible."""
        if not self.is_possible_speed(claimed):
            most = self.limits.steps_per_s
            self._suspect(f"reports {speed_text(claimed, 6)}, at most {most:.6g} are possible")

    def is_possible_speed(self, steps_per_s: float) -> bool:
        """Return whether the job can run this fast on the devices of its lease."""
        return steps_per_s <= self.limits.steps_per_s

    def _suspect(self, problem: str) -> None:
        self.reports.record(self.job, self.lease, None if self._known else problem)
        self._known = True


class ClaimChecker:
    """Makes the claims of leases, with the limits of their jobs and devices."""

    def __init__(
        self,
        queries: Queries,
        specs: Mapping[str, JobSpec],
        counters: JobCounters,
        *,
        believed: SpeedTable,
        emulated: SpeedTable | None,
    ) -> None:
        self._queries, self._specs, self._counters = queries, specs, counters
        self._believed, self._emulated = believed, emulated
        self._fastest = _fastest_speeds(emulated or believed)
        self.reports = SuspiciousReports()

    def use_config(self, config: SchedulingConfig) -> None:
        """Compare the claims of later leases with other believed speeds."""
        self._believed = config.beliefs
        self._fastest = _fastest_speeds(self._emulated or self._believed)

    def claims_of(self, lease: int, job_id: str) -> Claims:
        """Return the claims of a lease that begins, or that an earlier server left open."""
        return Claims(self._limits_of(lease, job_id), self.reports, job_id, lease)

    def renew_limits(self, claims: Claims) -> None:
        """Compare the later claims of an open lease with the speeds that are believed now."""
        now = self._limits_of(claims.lease, claims.job)
        claims.limits = replace(
            claims.limits, steps_per_s=now.steps_per_s, job_steps_per_s=now.job_steps_per_s
        )

    def _limits_of(self, lease: int, job_id: str) -> ClaimLimits:
        spec = self._specs[job_id]
        started_at = self._counters.of(job_id).started_at
        shared = self._queries.shared_devices(lease)
        accelerators = [] if shared is None else shared.accelerators
        job_limit = self._job_limit(
            spec.workload, spec.max_gang or max(spec.gang, len(accelerators))
        )
        return ClaimLimits(
            steps=math.inf if spec.steps is None else float(spec.steps),
            steps_per_s=self._lease_limit(spec, accelerators) or job_limit,
            saved_steps=self._queries.saved_steps(self._queries.job_number(job_id)),
            job_steps_per_s=job_limit,
            job_started_at=-math.inf if started_at is None else started_at,
        )

    def _lease_limit(self, spec: JobSpec, accelerators: list[str]) -> float | None:
        """Return the limit on these accelerators; None if the job's own limit applies."""
        if self._emulated is None or not accelerators:
            return None
        speed = speed_of_size(self._emulated, spec.workload, accelerators, spec.gang)
        return min(speed * _EMULATED_TOLERANCE, _MAX_STEPS_PER_S) if speed > 0 else None

    def _job_limit(self, workload: str, devices: int) -> float:
        table = self._emulated or self._believed
        speed = self._fastest.get(workload, math.inf)
        if not table.has_gang_speeds:
            speed *= devices
        elif gangs := table.gangs.get(workload):
            speed *= max(devices / gangs[-1], 1.0)  # an elastic job may grow beyond the table
        tolerance = _EMULATED_TOLERANCE if self._emulated else _BELIEVED_TOLERANCE
        return min(speed * tolerance, _MAX_STEPS_PER_S)


def _fastest_speeds(table: SpeedTable) -> dict[str, float]:
    """Return workload → its fastest speed."""
    fastest: dict[str, float] = {}
    for key, speed in table.steps_per_s.items():
        fastest[key.workload] = max(speed, fastest.get(key.workload, 0.0))
    return fastest
