"""Changes of jobs: cancel, suspend, resume, and another weight, priority or deadline."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.inputs.joined_events import joined
from fairlead.live.job_requests.rejections import Reject, reject_job
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.live.tenants import changed_job
from fairlead.model import events as ev
from fairlead.model.errors import InputError, ProtocolError
from fairlead.model.job import Job
from fairlead.store import Audit, Change, Put, Remove, User
from fairlead.store.audit import changed_values, name_of

Promise = Callable[[str], Change]
"""job → the document that promises to kill its processes"""
_Events = Callable[[float, str], Sequence[ev.Event] | None]
"""instant and job → its events, which the core will accept; None: the job stays as it is"""
_Documents = Callable[[str], Sequence[Change]]
"""job → its documents, once its events are handled"""


class JobChanges:
    """Turns changes of jobs into events: those of a request are persisted together.

    ``reject`` gets each job that cannot be changed. If it raises, no job of the request changes.
    """

    def __init__(
        self,
        scheduler: Scheduler[Any],
        suspended_jobs: set[str],
        outcomes: LeaseOutcomes,
        *,
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._scheduler, self._suspended_jobs = scheduler, suspended_jobs
        self._outcomes, self._dependencies = outcomes, outcomes.ends.dependencies
        self._clock, self._inbox, self._stream = clock, inbox, stream

    async def adjust(
        self,
        job_ids: Sequence[str],
        user: User,
        adjusted: Callable[[Job], Job],
        detail: str,
        *,
        is_admin: bool,
        reject: Reject = reject_job,
    ) -> None:
        """Give jobs another priority, weight or deadline."""
        jobs = self._scheduler.jobs
        values: dict[str, dict[str, Any]] = {}

        def events(at: float, job_id: str) -> Sequence[ev.Event]:
            old = jobs.jobs[jobs.find(job_id)]
            job = changed_job(self._scheduler, old, adjusted(old), is_admin=is_admin)
            values[job_id] = changed_values(old, job)
            return [ev.JobChanged(at, job)]

        def documents(job_id: str) -> Sequence[Change]:
            now = self._clock.now()
            return [Audit(now, user, "change", job_id, detail, changes=values[job_id])]

        await self._apply("change", job_ids, events, documents, reject)

    async def cancel(
        self,
        job_ids: Sequence[str],
        user: User,
        promise: Promise | None = None,
        reject: Reject = reject_job,
    ) -> list[str]:
        """Cancel jobs and return them; a promise to kill is kept for ended ones that run on."""
        jobs, leases = self._scheduler.jobs, self._scheduler.leases
        ended: set[str] = set()

        def events(at: float, job_id: str) -> Sequence[ev.Event]:
            number = jobs.number.get(job_id)  # None: it was removed meanwhile
            runs_on = number is not None and jobs.has_ended(number) and len(leases.of_job(number))
            if promise is not None and runs_on:
                ended.add(job_id)
                return []
            jobs.find(job_id)
            return [ev.JobCancelled(at, job_id)]

        def documents(job_id: str) -> Sequence[Change]:
            action = "kill" if job_id in ended else "cancel"
            changes: list[Change] = [Audit(self._clock.now(), user, action, job_id)]
            self._outcomes.cancel_backoff(job_id)
            if job_id in self._suspended_jobs:
                self._suspended_jobs.discard(job_id)
                changes.append(Remove("hold", job_id))
            return changes if promise is None else [*changes, promise(job_id)]

        return await self._apply("cancel", job_ids, events, documents, reject)

    async def suspend(
        self, job_ids: Sequence[str], user: User, reject: Reject = reject_job
    ) -> None:
        """Preempt jobs and hold them until they are resumed."""

        def events(at: float, job_id: str) -> Sequence[ev.Event]:
            self._scheduler.jobs.find(job_id)
            return [ev.JobHeld(at, job_id)]

        def documents(job_id: str) -> Sequence[Change]:
            self._outcomes.cancel_backoff(job_id)
            self._suspended_jobs.add(job_id)  # at once: a retry that is due must not release it
            audit = Audit(self._clock.now(), user, "suspend", job_id)
            return [audit, Put("hold", job_id, name_of(user))]

        await self._apply("suspend", job_ids, events, documents, reject)

    async def resume(
        self, job_ids: Sequence[str], user: User, reject: Reject = reject_job
    ) -> None:
        """Schedule the held ones of these jobs again, after the jobs that they depend on."""
        jobs = self._scheduler.jobs

        def events(at: float, job_id: str) -> Sequence[ev.Event] | None:
            if jobs.state[jobs.find(job_id)] != JobState.HELD:
                return None
            return [] if self._dependencies.waits(job_id) else [ev.JobReleased(at, job_id)]

        def documents(job_id: str) -> Sequence[Change]:
            self._outcomes.cancel_backoff(job_id)
            self._suspended_jobs.discard(job_id)
            return [Audit(self._clock.now(), user, "resume", job_id), Remove("hold", job_id)]

        resumed = await self._apply("resume", job_ids, events, documents, reject)
        if waiting := [job_id for job_id in resumed if self._dependencies.waits(job_id)]:
            self._dependencies.settle(waiting)

    async def _apply(
        self,
        action: str,
        job_ids: Sequence[str],
        events: _Events,
        documents: _Documents,
        reject: Reject,
    ) -> list[str]:
        """Change jobs in one transaction; return the changed ones once they are persisted."""
        changed: list[str] = []

        def make(at: float) -> Iterator[ev.Event | None]:
            made: list[ev.Event] = []
            for index, job_id in enumerate(job_ids):
                yield None
                try:
                    each = events(at, job_id)
                except (InputError, ProtocolError) as error:
                    reject(index, error)
                    continue
                if each is not None:
                    changed.append(job_id)
                    made += each
            for event in joined(made):
                yield event
                yield None

        def changes() -> Iterator[Change | None]:
            for job_id in changed:
                yield from documents(job_id)
                yield None

        await self._inbox.submit(make, changes)
        for job_id in changed:
            self._stream.publish("job.changed", job=job_id, action=action)
        return changed
