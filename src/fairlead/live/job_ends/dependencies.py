"""Dependencies between jobs: a job is held until the jobs that it names have ended.

A job that starts from the checkpoint of another is held until that is copied, too.
"""

from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial

from fairlead.core.queries import JobState, Queries
from fairlead.live.checkpoints.starts import CheckpointStarts
from fairlead.live.history.recorder import HistoryRecorder
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.inputs.joined_events import joined
from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.errors import InputError
from fairlead.store import Change, Remove

_MAX_LISTED = 5
"""ids of jobs that an error lists"""
RequestNames = Mapping[tuple[str, str], Collection[str]]
"""tenant and name → ids of the jobs of one request that have it"""
_ENDED_WORDS = {JobState.FAILED: "has failed", JobState.CANCELLED: "was cancelled"}


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """Progress of the jobs that a job depends on."""

    unended: tuple[str, ...] = ()
    """jobs that have not ended"""
    problem: str = ""
    """reason why the job can never start, if there is one"""

    @property
    def is_met(self) -> bool:
        """Whether the job may be scheduled."""
        return not self.unended and not self.problem


class JobDependencies:
    """Releases jobs when the jobs they depend on have ended, or fails them.

    A job may start when all jobs in ``after`` have finished and all in ``after_any`` have ended.
    This follows from the scheduler's states alone, so a restarted server continues with it. Only
    jobs that exist, or are submitted in the same request, can be named, and a request with a
    cycle is rejected; so there are none.
    """

    def __init__(
        self,
        queries: Queries,
        specs: Mapping[str, JobSpec],
        suspended_jobs: set[str],
        messages: MutableMapping[str, str],
        history: HistoryRecorder,
        inbox: Inbox,
        checkpoint_dir: Callable[[str], str],
    ) -> None:
        self._queries, self._specs, self._suspended_jobs = queries, specs, suspended_jobs
        self._messages, self._history, self._inbox = messages, history, inbox
        self.starts = CheckpointStarts(specs, checkpoint_dir, self._copied)
        self._dependents: dict[str, set[str]] = {}
        """job that has not ended → jobs that wait for it"""

    def resolver(self, in_request: RequestNames) -> "NameResolver":
        """Return a resolver of the names of jobs of one request and of those before it."""
        return NameResolver(self._specs, self._is_unended, self.status, in_request)

    async def require_checkpoint(self, named: JobSpec, new: Container[str]) -> None:
        """Raise InputError if the job that a submitted one starts from has no checkpoint.

        One that the submitted job also waits for may still save it; ``new`` are the jobs of the
        same request.
        """
        source = named.start_from
        if source is None or source in (*named.after, *named.after_any):
            return
        if source in new:
            fix = "expected it in after or after_any, too"
            problem = "a job of the same request, which has no checkpoint yet"
            raise InputError(problem, fix=fix, field="start_from")
        await self.starts.require(source)

    def status(self, spec: JobSpec) -> DependencyStatus:
        """Return the progress of the jobs that a job depends on."""
        unended = []
        for job_id in dict.fromkeys((*spec.after, *spec.after_any)):
            state = self._state(job_id)
            if state in (JobState.ACTIVE, JobState.HELD):
                unended.append(job_id)
            # A removed job had finished: otherwise those that depended on it failed with it.
            elif state is not None and state != JobState.FINISHED and job_id in spec.after:
                return DependencyStatus(problem=f"job {job_id} {_ENDED_WORDS[state]}")
        return DependencyStatus(tuple(unended))

    def waits(self, job_id: str) -> bool:
        """Return whether a job is held until others have ended or its checkpoint is copied."""
        spec = self._specs.get(job_id)
        if spec is None or not (spec.after or spec.after_any or spec.start_from):
            return False
        is_held = self._state(job_id) == JobState.HELD
        return is_held and (self._needs_checkpoint(spec) or not self.status(spec).is_met)

    def must_wait(self, spec: JobSpec) -> bool:
        """Return whether a job that is submitted now must be held."""
        return spec.start_from is not None or not self.status(spec).is_met

    def unended(self, job_id: str) -> list[str]:
        """Return the jobs that a held job waits for."""
        spec = self._specs[job_id]
        if not (spec.after or spec.after_any) or self._state(job_id) != JobState.HELD:
            return []
        return [*self.status(spec).unended]

    def add(self, spec: JobSpec) -> None:
        """Follow the jobs that a held job waits for."""
        unended = self.status(spec).unended
        for job_id in unended:
            self._dependents.setdefault(job_id, set()).add(spec.id)
        if spec.start_from is not None and not unended:
            self.settle([spec.id])

    def resume(self) -> None:
        """Follow the jobs that waited under an earlier server, and act on ends it left."""
        waiting = [job_id for job_id in self._queries.held_jobs() if self.waits(job_id)]
        for job_id in waiting:
            self.add(self._specs[job_id])
        if waiting:
            self.settle(waiting)

    def job_ended(self, job_id: str) -> None:
        """Release or fail the jobs that wait for a job, once its end is persisted."""
        dependents = self._dependents.pop(job_id, None)
        if dependents:
            self.settle(sorted(dependents))

    def settle(self, job_ids: Sequence[str]) -> None:
        """Release the held jobs among these that need not wait, or fail them."""
        changes: list[Change] = []
        self._inbox.post(partial(self._settle, job_ids, changes), lambda: changes)

    def _settle(
        self, job_ids: Sequence[str], changes: list[Change], at: float
    ) -> Iterator[ev.Event | None]:
        events: list[ev.Event] = []
        for job_id in job_ids:
            yield None
            spec = self._specs.get(job_id)
            if spec is None or self._state(job_id) != JobState.HELD:
                continue
            status = self.status(spec)
            if status.problem:
                events.append(ev.JobFailed(at, job_id))
                changes += self._failed(job_id, f"dependency: {status.problem}")
            elif status.is_met and job_id not in self._suspended_jobs:
                if self._needs_checkpoint(spec):
                    self.starts.begin(job_id)
                else:
                    events.append(ev.JobReleased(at, job_id))
        for event in joined(events):
            yield event
            yield None

    def _needs_checkpoint(self, spec: JobSpec) -> bool:
        """Return whether the checkpoint that a held job starts from may not be copied yet."""
        if spec.start_from is None:
            return False
        return self._queries.saved_steps(self._queries.job_number(spec.id)) == 0.0

    def _copied(self, job_id: str, steps: float, problem: str) -> None:
        """Release a job whose checkpoint is copied; fail it if that is impossible."""
        changes: list[Change] = []

        def make(at: float) -> list[ev.Event]:
            if self._state(job_id) != JobState.HELD:
                return []
            if problem:
                changes.extend(self._failed(job_id, problem))
                return [ev.JobFailed(at, job_id)]
            # A suspended job asks again when it is resumed.
            return [] if job_id in self._suspended_jobs else [ev.JobReleased(at, job_id, steps)]

        self._inbox.post(make, lambda: changes)

    def _failed(self, job_id: str, message: str) -> list[Change]:
        self._messages[job_id] = message
        suspended = job_id in self._suspended_jobs
        self._suspended_jobs.discard(job_id)
        hold = [Remove("hold", job_id)] if suspended else []
        return [self._history.exit_change(job_id, message), *hold]

    def _is_unended(self, job_id: str) -> bool:
        return self._state(job_id) in (JobState.ACTIVE, JobState.HELD)

    def _state(self, job_id: str) -> JobState | None:
        number = self._queries.find_job(job_id)
        return None if number is None else self._queries.job_state(number)


class NameResolver:
    """Finds the jobs that submitted ones name; valid until the next job is kept or removed."""

    def __init__(
        self,
        specs: Mapping[str, JobSpec],
        is_unended: Callable[[str], bool],
        status: Callable[[JobSpec], DependencyStatus],
        in_request: RequestNames,
    ) -> None:
        self._specs, self._is_unended, self._status = specs, is_unended, status
        self._in_request = in_request
        self._named: dict[tuple[str, str], list[str]] | None = None
        """tenant and name → ids, oldest first; None until a job is named by its name"""
        self._unended: dict[tuple[str, str], list[str]] = {}
        """tenant and name → those of them that have not ended, for names that were asked for"""

    def resolve(self, spec: JobSpec) -> JobSpec:
        """Return a submitted job that names others by id; InputError for one it cannot wait for.

        A name stands for the other job of the request that has it; without one for the tenant's
        only unended job of this name, or else for the newest.
        """
        if spec.start_from is not None:
            source = self._find(spec.start_from, spec, "start_from")
            spec = replace(spec, start_from=source)
        if not (spec.after or spec.after_any):
            return spec
        after, after_any = (
            tuple(dict.fromkeys(self._find(name, spec, field) for name in dict.fromkeys(names)))
            for names, field in ((spec.after, "after"), (spec.after_any, "after_any"))
        )
        spec = replace(spec, after=after, after_any=after_any)
        problem = self._status(spec).problem
        if problem:
            fix = "expected a job that can still finish; --after-any accepts every end"
            raise InputError(problem, fix=fix, field="after")
        return spec

    def _find(self, name: str, spec: JobSpec, field: str) -> str:
        """Return the id of the tenant's job with an id or a name."""
        known = self._specs.get(name)
        if known is not None and known.tenant == spec.tenant:
            return name
        others = [job for job in self._in_request.get((spec.tenant, name), ()) if job != spec.id]
        if len(others) > 1:
            problem = f"{len(others)} jobs of the request are named {name!r}"
            raise InputError(problem, fix="expected a name that one of them has", field=field)
        if others:
            return others[0]
        named, unended = self._jobs_named(spec.tenant, name)
        if len(unended) > 1:
            listed = ", ".join(unended[:_MAX_LISTED])
            problem = f"{len(unended)} jobs are named {name!r}"
            raise InputError(problem, fix=f"expected ids, such as {listed}", field=field)
        if not named:
            fix = f"expected the id or name of a job of tenant {spec.tenant}: see `fairlead jobs`"
            raise InputError(f"no job {name!r}", fix=fix, field=field)
        return (unended or named)[-1]

    def _jobs_named(self, tenant: str, name: str) -> tuple[list[str], list[str]]:
        """Return the tenant's jobs of a name, and those of them that have not ended."""
        if self._named is None:
            self._named = {}
            for job in self._specs.values():
                self._named.setdefault((job.tenant, job.name), []).append(job.id)
        named = self._named.get((tenant, name), [])
        if (tenant, name) not in self._unended:
            self._unended[tenant, name] = [each for each in named if self._is_unended(each)]
        return named, self._unended[tenant, name]
