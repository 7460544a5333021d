"""Accepted jobs: the submitted fields with the job's id and tenant."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import structlog

from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT, Job, parse_accelerators
from fairlead.model.submission.fields import declared_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.workload import workload_of_command

log = structlog.get_logger("fairlead.live")

UNBOUNDED_STEPS = 1_000_000
"""steps assumed for a job that declares none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(NewJob):
    """A job as the server keeps it: all that its scheduling and its launch orders need."""

    id: str = ""
    """assigned by the server"""
    tenant: str = DEFAULT_TENANT

    @classmethod
    def of(cls, new: NewJob, tenant: str) -> "JobSpec":
        """Return the specification of a submitted job, without an id, for a tenant.

        A job that names no workload has the one of its command.
        """
        values = {item.name: getattr(new, item.name) for item in fields(NewJob)}
        values["accelerators"] = new.accelerators or None
        values["workload"] = new.workload or workload_of_command(new.command, new.directory)
        return cls(**{**values, "tenant": tenant})

    def check_pattern(self) -> None:
        """Accept every pattern: it was checked at its submission, the keeper bounds its use."""

    def validate_command(self) -> None:
        """Raise InputError if no process can be started with the command or environment."""
        words: dict[str, Sequence[str]] = {
            "command": self.command,
            "directory": (self.directory,),
            "environment": (*self.environment, *self.environment.values()),
        }
        for name, texts in words.items():
            if any("\0" in text for text in texts):
                raise InputError("null byte", fix="remove it", field=name)
        for key in self.environment:
            if not key or "=" in key:
                raise InputError(
                    f"not the name of a variable: {key!r}",
                    fix="expected a name without '='",
                    field="environment",
                )

    def job(self, at: float) -> Job:
        """Return the scheduler's job, submitted at a time."""
        names, gangs = parse_accelerators(self.accelerators or ())
        return Job(
            id=self.id,
            workload=self.workload,
            total_steps=float(self.steps or UNBOUNDED_STEPS),
            open_ended=self.steps is None,
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
            declared_speeds=self.speeds,
            max_copies=self.max_copies,
        )

    @property
    def ranks(self) -> int:
        """The size of its largest gang."""
        _, gangs = parse_accelerators(self.accelerators or ())
        return max(self.gang, self.max_gang or 0, *gangs.values())

    @property
    def may_fork(self) -> bool:
        """Whether copies of the job may train at once."""
        return (self.max_copies or 1) > 1

    def with_id(self, job_id: str) -> "JobSpec":
        """Return the specification with its id."""
        return replace(self, id=job_id)

    def document(self) -> str:
        """Return the specification as JSON, for the store."""
        return json.dumps({item.name: getattr(self, item.name) for item in fields(self)})


def _clamp(values: dict[str, Any]) -> None:
    """Move numbers into the limits, which may be narrower than those of an earlier version."""
    for item in declared_fields(NewJob):
        before = values.get(item.name)
        after = item.clamp(before)
        if after is not before:
            values[item.name] = after
            job_id = values.get("id")
            log.warning("job.clamped", job=job_id, field=item.name, stored=before, used=after)


def read_spec(document: str) -> JobSpec:
    """Return the specification of a stored document; unknown keys are ignored."""
    stored = json.loads(document)
    known = {item.name for item in fields(JobSpec)}
    values = {key: value for key, value in stored.items() if key in known}
    values["command"] = tuple(values["command"])
    for name in ("secrets", "after", "after_any"):
        values[name] = tuple(map(str, values.get(name, ())))
    if values.get("accelerators") is not None:
        values["accelerators"] = tuple(values["accelerators"])
    _clamp(values)
    return JobSpec(**values)
