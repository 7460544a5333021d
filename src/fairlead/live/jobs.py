"""Requests of users: submit, change, cancel, suspend and resume jobs."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream
from fairlead.live.inbox import Inbox
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.live.tenants import entitled_job
from fairlead.model import events as ev
from fairlead.model.job import parse_accelerators
from fairlead.store import Audit, Change, Put, Remove, User
from fairlead.store.audit import name_of


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
        self._scheduler, self._specs = scheduler, specs
        self._suspended_jobs, self._outcomes = suspended_jobs, outcomes
        self._dependencies = outcomes.ends.dependencies
        self._clock, self._inbox, self._stream = clock, inbox, stream
        self._job_of_key: dict[tuple[str, str], str] | None = None
        """tenant and idempotency key → job; None until the first submission with a key"""

    async def submit(self, spec: JobSpec, user: User, *, is_admin: bool = False) -> JobSpec:
        """Admit a job; return it with its id once it is persisted.

        An admin may exceed the caps of the tenant, and the numbers count against all tenants.
        A job with the idempotency key of an earlier one is that job.
        """
        if self._submitted_before(spec) is None:
            await self._dependencies.require_checkpoint(spec)
        admitted: list[JobSpec] = []
        repeated: list[JobSpec] = []

        def make(at: float) -> Sequence[ev.Event]:
            if (earlier := self._submitted_before(spec)) is not None:
                repeated.append(earlier)
                return []
            spec.validate_command()
            if spec.notify:
                self._outcomes.ends.notifications.allowed.check(spec.notify)
            job_id = spec.id or f"j{len(self._scheduler.jobs) + 1}"
            named = self._dependencies.resolve(spec.with_id(job_id))
            counts = parse_accelerators(named.accelerators or ())[1]
            self._scheduler.jobs.admission.check_device_counts(counts)
            job = entitled_job(self._scheduler, named.job(at), is_admin=is_admin)
            self._scheduler.jobs.admission.check_declared_speeds(job)
            admitted.append(named)
            return [ev.JobSubmitted(at, job, held=self._dependencies.must_wait(named))]

        def changes() -> Sequence[Change]:
            if repeated:
                return []
            (named,) = admitted
            self._specs[named.id] = named
            if self._job_of_key is not None:
                self._job_of_key[named.tenant, named.idempotency_key] = named.id
            self._dependencies.add(named)
            return [
                Put("job", named.id, named.document()),
                Audit(self._clock.now(), user, "submit", named.id),
            ]

        await self._inbox.submit(make, changes)
        if repeated:
            return repeated[0]
        self._stream.publish("job.submitted", job=admitted[0].id)
        return admitted[0]

    def _submitted_before(self, spec: JobSpec) -> JobSpec | None:
        """Return the job of the same tenant with the same idempotency key."""
        if not spec.idempotency_key:
            return None
        if self._job_of_key is None:
            self._job_of_key = {
                (one.tenant, one.idempotency_key): one.id
                for one in self._specs.values()
                if one.idempotency_key
            }
        return self._specs.get(self._job_of_key.get((spec.tenant, spec.idempotency_key), ""))

    async def change(self, event: Callable[[float], ev.JobChanged], audit: Audit) -> None:
        """Change a job's priority, weight or deadline."""
        await self._inbox.submit(lambda at: [event(at)], [audit])
        self._publish_change(audit)

    async def cancel(self, job_id: str, user: User, more: Sequence[Change] = ()) -> None:
        """Cancel a job, and persist more document changes with it."""
        audit = Audit(self._clock.now(), user, "cancel", job_id)

        def changes() -> Sequence[Change]:
            self._outcomes.cancel_backoff(job_id)
            suspended = job_id in self._suspended_jobs
            self._suspended_jobs.discard(job_id)
            return [audit, *([Remove("hold", job_id)] if suspended else []), *more]

        await self._inbox.submit(lambda at: [ev.JobCancelled(at, job_id)], changes)
        self._publish_change(audit)

    async def suspend(self, job_id: str, user: User) -> None:
        """Preempt a job and hold it until it is resumed."""
        audit = Audit(self._clock.now(), user, "suspend", job_id)

        def changes() -> Sequence[Change]:
            self._outcomes.cancel_backoff(job_id)
            self._suspended_jobs.add(job_id)  # at once: a retry that is due must not release it
            return [audit, Put("hold", job_id, name_of(user))]

        await self._inbox.submit(lambda at: [ev.JobHeld(at, job_id)], changes)
        self._publish_change(audit)

    async def resume(self, job_id: str, user: User) -> None:
        """Schedule a suspended job again; it still waits for the jobs that it depends on."""
        audit = Audit(self._clock.now(), user, "resume", job_id)

        def changes() -> Sequence[Change]:
            self._outcomes.cancel_backoff(job_id)
            self._suspended_jobs.discard(job_id)
            return [audit, Remove("hold", job_id)]

        def release(at: float) -> Sequence[ev.Event]:
            return [] if self._dependencies.waits(job_id) else [ev.JobReleased(at, job_id)]

        await self._inbox.submit(release, changes)
        if self._dependencies.waits(job_id):
            self._dependencies.settle([job_id])
        self._publish_change(audit)

    def forget(self, job_id: str) -> None:
        """Drop the specification and the idempotency key of a removed job."""
        spec = self._specs.pop(job_id, None)
        if spec is not None and self._job_of_key is not None:
            self._job_of_key.pop((spec.tenant, spec.idempotency_key), None)

    def _publish_change(self, audit: Audit) -> None:
        self._stream.publish("job.changed", job=audit.subject, action=audit.action)
