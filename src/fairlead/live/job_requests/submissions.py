"""Submissions: the jobs of a request are admitted together, or none of them is."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.inputs.joined_events import joined
from fairlead.live.inputs.pieces import PIECE
from fairlead.live.job_ends.ends import JobEnds
from fairlead.live.job_requests.rejections import Reject, reject_job
from fairlead.live.job_requests.request_jobs import RequestJobs, key_of
from fairlead.live.job_spec import JobSpec
from fairlead.live.tenants import Entitlements
from fairlead.model import events as ev
from fairlead.model.errors import InputError
from fairlead.model.job import Job, parse_accelerators
from fairlead.store import Audit, Change, Put, User


class Submissions:
    """Admits jobs and recognises repeated submissions by their idempotency keys."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        specs: dict[str, JobSpec],
        ends: JobEnds,
        *,
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._scheduler, self._specs, self._ends = scheduler, specs, ends
        self._clock, self._inbox, self._stream = clock, inbox, stream
        self._job_of_key: dict[tuple[str, str], str] | None = None
        """tenant and idempotency key → job; None until the first submission with a key"""

    async def submit(
        self, specs: Sequence[JobSpec], user: User, *, is_admin: bool, reject: Reject = reject_job
    ) -> list[JobSpec]:
        """Admit all jobs or none; return them with their ids once they are persisted.

        A job with the idempotency key of an earlier one is that job. ``after``, ``after_any`` and
        ``start_from`` name jobs of the same request, or ones that were submitted before.
        """
        await self._require_checkpoints(specs, reject)
        made: list[RequestJobs] = []

        def make(at: float) -> Iterator[ev.Event | None]:
            count = len(self._scheduler.jobs) + 1
            request = RequestJobs(specs, self.submitted_before, lambda new: f"j{count + new}")
            made.append(request)
            events: list[ev.Event] = []
            for submitted in self._admit(specs, request, at, is_admin=is_admin, reject=reject):
                events.append(submitted)
                yield None
            request.reject_cycles(reject)
            for job_id, event in zip(request.new, joined(events), strict=True):
                yield event
                self._specs[job_id] = request.kept[job_id]
                yield None

        def changes() -> Iterator[Change | None]:
            for job_id in made[0].new:
                yield from self._keep(self._specs[job_id], user)
                yield None

        await self._inbox.submit(make, changes)
        request = made[0]
        for job_id in request.new:
            self._stream.publish("job.submitted", job=job_id)
        return [request.kept[job_id] for job_id in request.ids]

    async def _require_checkpoints(self, specs: Sequence[JobSpec], reject: Reject) -> None:
        if all(spec.start_from is None for spec in specs):
            return
        request = RequestJobs(specs, self.submitted_before, lambda new: f"new {new}")
        resolver = self._ends.dependencies.resolver(request.names)
        checked = set()
        for index, spec in enumerate(specs):
            if spec.start_from is None or not request.is_to_admit(index):
                continue
            if index % PIECE == 0:
                await asyncio.sleep(0)
            try:
                named = resolver.resolve(spec.with_id(request.ids[index]))
                origin = named.start_from, named.after, named.after_any
                if origin not in checked:
                    await self._ends.dependencies.require_checkpoint(named, request.new)
                    checked.add(origin)
            except InputError as error:
                reject(index, error)

    def _admit(
        self,
        specs: Sequence[JobSpec],
        request: RequestJobs,
        at: float,
        *,
        is_admin: bool,
        reject: Reject,
    ) -> Iterator[ev.JobSubmitted]:
        """Yield the events of the new jobs, each of which the core will accept."""
        entitlements = Entitlements(self._scheduler, is_admin=is_admin)
        dependencies = self._ends.dependencies
        resolver = dependencies.resolver(request.names)
        for job_id, index in request.new.items():
            try:
                named = resolver.resolve(specs[index].with_id(job_id))
                job = self._checked(named, at, entitlements)
            except InputError as error:
                reject(index, error)
                continue
            request.kept[job_id] = named
            held = request.has_new((*named.after, *named.after_any))
            yield ev.JobSubmitted(at, job, held=held or dependencies.must_wait(named))

    def _checked(self, spec: JobSpec, at: float, entitlements: Entitlements) -> Job:
        """Return the scheduler's job; InputError if it can never run or exceeds a cap.

        The core checks the job once more, but by then it has handled those before it.
        """
        spec.validate_command()
        if spec.notify:
            self._ends.notifications.allowed.check(spec.notify)
        admission = self._scheduler.jobs.admission
        admission.check_device_counts(parse_accelerators(spec.accelerators or ())[1])
        job = entitlements.admit(spec.job(at))
        admission.check_declared_speeds(job)
        admission.check(job)
        return job

    def _keep(self, spec: JobSpec, user: User) -> list[Change]:
        """Keep an admitted job's key and dependencies; return the documents to persist."""
        if self._job_of_key is not None:
            self._job_of_key[key_of(spec)] = spec.id
        self._ends.dependencies.add(spec)
        audit = Audit(self._clock.now(), user, "submit", spec.id)
        return [Put("job", spec.id, spec.document()), audit]

    def submitted_before(self, spec: JobSpec) -> JobSpec | None:
        """Return the job of the same tenant with the same idempotency key."""
        if not spec.idempotency_key:
            return None
        if self._job_of_key is None:
            self._job_of_key = {
                key_of(one): one.id for one in self._specs.values() if one.idempotency_key
            }
        return self._specs.get(self._job_of_key.get(key_of(spec), ""))

    def forget(self, job_id: str) -> None:
        """Drop the specification and the idempotency key of a removed job."""
        spec = self._specs.pop(job_id, None)
        if spec is not None and self._job_of_key is not None:
            self._job_of_key.pop(key_of(spec), None)
