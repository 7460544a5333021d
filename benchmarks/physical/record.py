"""Record of a run: its jobs with their leases, as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One lease of a job."""

    accelerator: str
    is_first: bool
    began: str
    """start of a process, or resume of a parked one"""
    left: str
    """exit of the process, or offload"""
    held_s: float
    steps: float
    start_s: float | None
    end_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job; times are seconds since the first submission."""

    workload: str
    tenant: str
    steps: int
    arrival_s: float
    ended_s: float
    leases: Sequence[Lease]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A speed that the server believed from some time on."""

    at_s: float
    workload: str
    """scoped, as in the event log"""
    accelerator: str
    steps_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of the experiment."""

    policy: str
    round_s: float
    devices: Sequence[str]
    """accelerator of each device, in the order of their numbers"""
    speeds: str
    """name or file of the profiled speeds"""
    jobs: Sequence[JobRecord]
    beliefs: Sequence[Belief] | None = None
    """in order of time; None if not recorded"""
    plan_s: float | None = None
    """mean time to compute a plan; None if not recorded"""
    hands_over: bool = False
    """whether plans are requested early, so that processes of moves can start meanwhile"""

    @property
    def average_completion_s(self) -> float:
        """Mean time from the submission of a job to its end."""
        return fmean(job.ended_s - job.arrival_s for job in self.jobs)

    @property
    def makespan_s(self) -> float:
        """Time from the first submission to the last end."""
        return max(job.ended_s for job in self.jobs)

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def read_record(path: Path) -> RunRecord:
    """Return the record in a file."""
    return parse_record(json.loads(path.read_text(encoding="utf-8")))


def parse_record(content: dict[str, Any]) -> RunRecord:
    """Return a record from its JSON."""
    jobs = [
        JobRecord(**{**job, "leases": [Lease(**lease) for lease in job["leases"]]})
        for job in content["jobs"]
    ]
    listed = content.get("beliefs")
    beliefs = None if listed is None else [Belief(**belief) for belief in listed]
    return RunRecord(**{**content, "jobs": jobs, "beliefs": beliefs})
