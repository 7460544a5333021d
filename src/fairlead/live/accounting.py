"""Counters per job that the scheduler's tables do not have, computed from events alone."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairlead.core.queries import JobState, Queries
from fairlead.model import commands as cmd
from fairlead.model import events as ev


@dataclass(slots=True)
class JobCounts:
    """Counts of one job."""

    leases: int = 0
    preemptions: int = 0
    failures: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    accelerators: tuple[str, ...] = ()
    """accelerators it has run on, in order of first use"""
    lost_s: float = 0.0
    """seconds of its leases whose steps are in no checkpoint and were repeated"""


class JobCounters:
    """Counts by job id; a replay of the event log gives the same counts."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self.tally: dict[str, JobCounts] = {}
        self._job_of_lease: dict[int, str] = {}
        self._began: dict[int, tuple[float, float]] = {}
        """lease → time of its launch, and the job's checkpointed steps then"""
        self._steps: dict[int, float] = {}
        """lease → steps last reported"""

    def of(self, job_id: str) -> JobCounts:
        """Return a job's counts, zeros if it has none yet.

        Adds no entry: another thread may be saving the counts at this moment.
        """
        return self.tally.get(job_id) or JobCounts()

    def record(self, event: ev.Event) -> None:
        """Count an event that the scheduler has handled."""
        if isinstance(event, ev.JobCancelled | ev.JobFailed):
            self._counts_of(event.job_id).ended_at = event.at
        if isinstance(event, ev.Progress):
            self._steps.update(zip(event.lease.tolist(), event.steps.tolist(), strict=True))
        if not isinstance(event, ev.LeasesEnded):
            return
        for lease, kept in zip(event.lease.tolist(), event.steps.tolist(), strict=True):
            lost_s = self._lost_s(lease, kept, event.at)
            job_id = self._job_of_lease.pop(lease, None)
            if job_id is None:
                continue
            counts = self._counts_of(job_id)
            state = self._queries.job_state(self._queries.job_number(job_id))
            counts.failures += event.outcome == "failed"
            # Cancelled, suspended and failed jobs were not preempted.
            preempted = event.outcome == "left" and state == JobState.ACTIVE
            lost = event.outcome == "lost" and state in (JobState.ACTIVE, JobState.HELD)
            counts.preemptions += preempted or lost
            if state in (JobState.ACTIVE, JobState.HELD):
                counts.lost_s += lost_s
            if state == JobState.FINISHED:
                counts.ended_at = event.at

    def record_launch(self, command: cmd.Launch, at: float) -> None:
        """Count the leases that a command starts."""
        for lease, job in zip(command.lease.tolist(), command.on.job.tolist(), strict=True):
            job_id = self._queries.job_id(job)
            counts = self._counts_of(job_id)
            counts.leases += 1
            if counts.started_at is None:
                counts.started_at = at
            accelerator = self._queries.accelerator_of(job)
            if accelerator is not None and accelerator not in counts.accelerators:
                counts.accelerators = (*counts.accelerators, accelerator)
            self._job_of_lease[lease] = job_id
            self._began[lease] = (at, self._queries.saved_steps(job))

    def _lost_s(self, lease: int, kept: float, at: float) -> float:
        """Return the seconds of a lease that ends now with ``kept`` steps in a checkpoint.

        Time divides like steps: all of it is lost if the job reported no step and saved none.
        """
        reported = self._steps.pop(lease, 0.0)
        began_at, before = self._began.pop(lease, (at, 0.0))
        if reported <= before:
            return at - began_at if kept <= before else 0.0
        return (at - began_at) * max(reported - kept, 0.0) / (reported - before)

    def _counts_of(self, job_id: str) -> JobCounts:
        return self.tally.setdefault(job_id, JobCounts())

    def saved(self) -> dict[str, object]:
        """Return all counts, for ``restore``."""
        return {
            "tally": {job_id: asdict(counts) for job_id, counts in self.tally.items()},
            "leases": {str(lease): job_id for lease, job_id in self._job_of_lease.items()},
            "began": {str(lease): began for lease, began in self._began.items()},
            "steps": {str(lease): steps for lease, steps in self._steps.items()},
        }

    def restore(self, saved: Mapping[str, dict[str, Any]]) -> None:
        """Take the counts that ``saved`` returned."""
        for job_id, counts in saved["tally"].items():
            values = {**counts, "accelerators": tuple(counts["accelerators"])}
            self.tally[job_id] = JobCounts(**values)
        self._job_of_lease = {int(lease): str(job) for lease, job in saved["leases"].items()}
        began, steps = saved.get("began", {}), saved.get("steps", {})
        self._began = {int(lease): (at, before) for lease, (at, before) in began.items()}
        self._steps = {int(lease): float(made) for lease, made in steps.items()}
