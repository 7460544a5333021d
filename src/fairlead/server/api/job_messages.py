"""Messages of the REST API about jobs and their code."""

import json
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fairlead.model.job import Job
from fairlead.model.submission.new_job import Preemption, Priority, Seconds, Weight

State = Literal["queued", "running", "suspended", "finished", "failed", "cancelled"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobView(_Message):
    """Current state of a job."""

    id: str
    name: str
    tenant: str
    state: State
    workload: str
    gang: int
    min_gang: int | None
    max_gang: int | None
    """bounds of an elastic gang"""
    weight: float
    priority: int
    multijob: str | None
    steps_done: float
    total_steps: int | None
    accelerator: str | None
    devices: int
    """devices that it holds now"""
    accelerators_held: dict[str, int]
    """accelerator → devices that it and its copies hold now"""
    shares_with: list[str]
    """jobs of its tenant that are packed onto the same devices"""
    partners: int
    """jobs of all tenants that are packed onto the same devices"""
    accelerators_used: list[str]
    leases: int
    preemptions: int
    failures: int
    after: list[str]
    """jobs that must finish before it starts"""
    after_any: list[str]
    """jobs that must end before it starts"""
    hyperparameters: dict[str, str]
    """of a trial of a hyperparameter search"""
    start_from: str | None
    """job whose checkpoint it starts from"""
    waits_for: list[str]
    """those of them that have not ended"""
    time_limit_s: float | None
    """seconds for which it may hold devices"""
    held_s: float
    """seconds for which it has held devices so far"""
    code_snapshot: str
    """SHA-256 of the code snapshot that it runs in; empty: none"""
    code_commit: str
    """Git commit that the snapshot was made from"""
    code_dirty: bool
    """whether the snapshot differs from the commit"""
    container: str
    notify: str
    """site that gets its notifications, without the path"""
    preempt: Preemption
    pinned: bool
    """whether no plan may preempt it now: it does not checkpoint, must not be preempted, or has
    just started"""
    lost_s: float
    """seconds of its leases whose steps were in no checkpoint and were repeated"""
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    steps_per_s: float | None
    device_hours: float
    """device hours of all its leases so far"""
    metrics: dict[str, float | None]
    """last reported values; null for a value that is not finite"""
    exit_codes: list[int]
    """by rank, of the last lease that finished or failed; 128 plus the signal if killed"""
    signal: str | None
    """signal that ended the first failed member, such as SIGKILL"""
    log_tail: list[str] = []
    """last lines that this member printed under that lease; for a single job only"""
    suspicious_reports: int
    """reports of steps or speeds that are not possible, since the start of the server"""
    suspicion: str
    """the first such report under the newest such lease"""
    message: str
    command: list[str]


class JobChange(_Message):
    """Fields of a job that can be changed after submission."""

    priority: Priority | None = None
    weight: Weight | None = None
    deadline_s: Seconds | None = None

    @property
    def detail(self) -> str:
        """The new values as the audit trail shows them."""
        return json.dumps(self.model_dump(exclude_none=True))

    def apply_to(self, job: Job) -> Job:
        """Return a job with these changes."""
        return replace(
            job,
            priority=job.priority if self.priority is None else self.priority,
            weight=job.weight if self.weight is None else self.weight,
            deadline_s=job.deadline_s if self.deadline_s is None else self.deadline_s,
        )


class CodeSnapshotLimits(_Message):
    """Limits of a tenant's code snapshots."""

    max_bytes: int
    """maximum size of a snapshot"""
    quota_bytes: int
    """maximum size of all snapshots of the tenant"""
    used_bytes: int


class CodeSnapshotView(_Message):
    """A code snapshot, or the part of it that was uploaded."""

    id: str
    """its SHA-256"""
    complete: bool
