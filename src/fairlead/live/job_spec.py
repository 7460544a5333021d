"""What a user submits: a job for the scheduler, and what the engine must know to run it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT, Job, parse_accelerators

UNBOUNDED_STEPS = 1_000_000
"""what a job that does not say how many steps it makes is taken to have"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as it was submitted."""

    command: tuple[str, ...]
    id: str = ""
    """given by the server"""
    name: str = ""
    tenant: str = DEFAULT_TENANT
    workload: str = ""
    gang: int = 1
    min_gang: int | None = None
    max_gang: int | None = None
    multijob: str | None = None
    """the search that it is one try of"""
    steps: int | None = None
    weight: float = 1.0
    priority: int = 0
    deadline_s: float | None = None
    accelerators: tuple[str, ...] | None = None
    """as ``v100``, or ``k80=2`` where it needs another number of devices than its gang"""
    memory_gib: float | None = None
    """of one device: where there is less, the job does not run"""
    directory: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = 3
    grace_s: float = 30.0
    host_memory_gib: float | None = None
    """of all its processes: above it they are killed"""
    time_limit_s: float | None = None
    """of one lease"""
    progress_pattern: str | None = None

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("there is no command", fix="give what to run", field="command")
        for name in ("steps", "retries"):
            value = getattr(self, name)
            if value is not None and value < (1 if name == "steps" else 0):
                raise InputError(f"{value} is too few", fix="give a larger number", field=name)
        for name in ("grace_s", "time_limit_s", "host_memory_gib"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise InputError(f"{value!r} is not allowed", fix="give more than 0", field=name)
        _check_pattern(self.progress_pattern)

    def validate_command(self) -> None:
        """Refuse what no process can be started with."""
        words = {"command": self.command, "directory": (self.directory,)}
        words["environment"] = (*self.environment, *self.environment.values())
        for name, given in words.items():
            if any("\0" in word for word in given):
                raise InputError("it holds a null byte", fix="leave it out", field=name)
        for key in self.environment:
            if not key or "=" in key:
                raise InputError(
                    f"{key!r} is no name of a variable", fix="leave out '='", field="environment"
                )

    def job(self, at: float) -> Job:
        """Return the job as the scheduler sees it, submitted now."""
        names, gangs = parse_accelerators(self.accelerators or ())
        return Job(
            id=self.id,
            workload=self.workload,
            total_steps=float(self.steps or UNBOUNDED_STEPS),
            gang=self.gang,
            min_gang=self.min_gang,
            max_gang=self.max_gang,
            multijob=self.multijob,
            arrival_at=at,
            tenant=self.tenant,
            weight=self.weight,
            priority=self.priority,
            deadline_s=self.deadline_s,
            accelerators=names or None,
            gangs=gangs,
            memory_gib=self.memory_gib,
        )

    def named(self, job_id: str) -> "JobSpec":
        """Return the specification with its id."""
        return replace(self, id=job_id)

    def document(self) -> str:
        """Return the specification as JSON, for the store."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def read_spec(document: str) -> JobSpec:
    """Return the specification that ``document`` gave."""
    found = json.loads(document)
    known = {f.name for f in fields(JobSpec)}
    values = {key: value for key, value in found.items() if key in known}
    values["command"] = tuple(values["command"])
    if values.get("accelerators") is not None:
        values["accelerators"] = tuple(values["accelerators"])
    return JobSpec(**values)


def _check_pattern(pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InputError(
            f"it is no regular expression ({error})", fix="correct it", field="progress_pattern"
        ) from None
    if groups != 1:
        raise InputError(
            f"it has {groups} groups",
            fix=r"give one, as in 'step (\d+)'",
            field="progress_pattern",
        )
