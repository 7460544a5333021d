"""Requests of users: submit, change, cancel, suspend and resume jobs."""

from collections.abc import Callable
from typing import Any

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.job_requests.changes import JobChanges
from fairlead.live.job_requests.submissions import Submissions
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.model import events as ev
from fairlead.store import Audit, User


class JobController:
    """Turns users' requests into events; each returns once it is persisted."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        specs: dict[str, JobSpec],
        suspended_jobs: set[str],
        outcomes: LeaseOutcomes,
        *,
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._inbox, self._stream = inbox, stream
        self.submissions = Submissions(
            scheduler, specs, outcomes.ends, clock=clock, inbox=inbox, stream=stream
        )
        self.changes = JobChanges(
            scheduler, suspended_jobs, outcomes, clock=clock, inbox=inbox, stream=stream
        )

    async def submit(self, spec: JobSpec, user: User, *, is_admin: bool = False) -> JobSpec:
        """Admit a job; return it with its id once it is persisted.

        An admin may exceed the caps of the tenant, and the numbers count against all tenants.
        A job with the idempotency key of an earlier one is that job.
        """
        return (await self.submissions.submit([spec], user, is_admin=is_admin))[0]

    async def change(self, event: Callable[[float], ev.JobChanged], audit: Audit) -> None:
        """Change a job's priority, weight or deadline."""
        await self._inbox.submit(lambda at: [event(at)], [audit])
        self._stream.publish("job.changed", job=audit.subject, action=audit.action)

    async def cancel(self, job_id: str, user: User) -> None:
        """Cancel a job."""
        await self.changes.cancel([job_id], user)

    async def suspend(self, job_id: str, user: User) -> None:
        """Preempt a job and hold it until it is resumed."""
        await self.changes.suspend([job_id], user)

    async def resume(self, job_id: str, user: User) -> None:
        """Schedule a suspended job again; it still waits for the jobs that it depends on."""
        await self.changes.resume([job_id], user)

    def forget(self, job_id: str) -> None:
        """Drop the specification and the idempotency key of a removed job."""
        self.submissions.forget(job_id)
