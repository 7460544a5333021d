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


class JobCounters:
    """Counts by job id; a replay of the event log gives the same counts."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self.tally: dict[str, JobCounts] = {}
        self._job_of_lease: dict[int, str] = {}

    def of(self, job_id: str) -> JobCounts:
        """Return a job's counts, zeros if it has none yet.

        Adds no entry: another thread may be saving the counts at this moment.
        """
        return self.tally.get(job_id) or JobCounts()

    def record(self, event: ev.Event) -> None:
        """Count an event that the scheduler has handled."""
        if isinstance(event, ev.JobCancelled | ev.JobFailed):
            self._counts_of(event.job_id).ended_at = event.at
        if not isinstance(event, ev.LeasesEnded):
            return
        for lease in event.lease.tolist():
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

    def _counts_of(self, job_id: str) -> JobCounts:
        return self.tally.setdefault(job_id, JobCounts())

    def saved(self) -> dict[str, object]:
        """Return all counts, for ``restore``."""
        return {
            "tally": {job_id: asdict(counts) for job_id, counts in self.tally.items()},
            "leases": {str(lease): job_id for lease, job_id in self._job_of_lease.items()},
        }

    def restore(self, saved: Mapping[str, dict[str, Any]]) -> None:
        """Take the counts that ``saved`` returned."""
        for job_id, counts in saved["tally"].items():
            values = {**counts, "accelerators": tuple(counts["accelerators"])}
            self.tally[job_id] = JobCounts(**values)
        self._job_of_lease = {int(lease): str(job) for lease, job in saved["leases"].items()}
