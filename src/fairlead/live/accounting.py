"""What is counted for each job beside the core's own columns, from events alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from fairlead.core.jobs import JobState, JobTable
from fairlead.model import commands as cmd
from fairlead.model import events as ev


@dataclass(slots=True)
class JobCounts:
    """One job's counts."""

    leases: int = 0
    preemptions: int = 0
    failures: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    accelerators: tuple[str, ...] = ()
    """those it has run on, in order of first use"""


class Ledger:
    """Tallies by job id; the same after a replay as before."""

    def __init__(self) -> None:
        self.tally: dict[str, JobCounts] = {}
        self._job_of_lease: dict[int, str] = {}

    def of(self, job_id: str) -> JobCounts:
        """Return a job's tally, to look at: a job without one has nothing counted yet.

        Nothing is entered, for the tallies may be on their way into the store just now.
        """
        return self.tally.get(job_id) or JobCounts()

    def note(self, event: ev.Event, jobs: JobTable) -> None:
        """Count an event that the core has handled."""
        if isinstance(event, ev.JobCancelled | ev.JobFailed):
            self._mine(event.job_id).ended_at = event.at
        if not isinstance(event, ev.LeasesEnded):
            return
        for lease in event.lease.tolist():
            job_id = self._job_of_lease.pop(lease, None)
            if job_id is None:
                continue
            mine = self._mine(job_id)
            state = int(jobs.state[jobs.number[job_id]])
            mine.failures += event.outcome == "failed"
            # Whoever was cancelled, suspended by hand or failed was not preempted.
            preempted = event.outcome == "left" and state == JobState.ACTIVE
            lost = event.outcome == "lost" and state in (JobState.ACTIVE, JobState.HELD)
            mine.preemptions += preempted or lost
            if state == JobState.FINISHED:
                mine.ended_at = event.at

    def count_launch(
        self, command: cmd.Launch, at: float, jobs: JobTable, kinds: Sequence[str]
    ) -> None:
        """Count the leases that a command starts, on a cluster with these accelerators."""
        for lease, job in zip(command.lease.tolist(), command.on.job.tolist(), strict=True):
            job_id = jobs.ids[job]
            mine = self._mine(job_id)
            mine.leases += 1
            if mine.started_at is None:
                mine.started_at = at
            on = int(jobs.on[job])
            if on >= 0 and kinds[on] not in mine.accelerators:
                mine.accelerators = (*mine.accelerators, kinds[on])
            self._job_of_lease[lease] = job_id

    def _mine(self, job_id: str) -> JobCounts:
        return self.tally.setdefault(job_id, JobCounts())

    def saved(self) -> dict[str, object]:
        """Return what ``restore`` takes."""
        return {
            "tally": {job_id: asdict(mine) for job_id, mine in self.tally.items()},
            "leases": {str(lease): job_id for lease, job_id in self._job_of_lease.items()},
        }

    def restore(self, saved: Mapping[str, dict[str, dict[str, object]]]) -> None:
        """Go on from what was saved."""
        for job_id, found in saved["tally"].items():
            values = {**found, "accelerators": tuple(found["accelerators"])}  # type: ignore[arg-type]
            self.tally[job_id] = JobCounts(**values)  # type: ignore[arg-type]  # saved field by field
        self._job_of_lease = {int(lease): str(job) for lease, job in saved["leases"].items()}
