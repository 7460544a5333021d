"""Outcomes of leases: their events, the retries of failed jobs, and the notices to users."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairlead.core.queries import JobState, Queries
from fairlead.engines.base import Ended, Saved
from fairlead.job import checkpoint
from fairlead.live.accounting import JobCounters
from fairlead.live.clock import Clock
from fairlead.live.event_stream import EventStream
from fairlead.live.history.exits import failure_text
from fairlead.live.history.recorder import HistoryRecorder
from fairlead.live.inputs.inbox import EventFactory, Inbox
from fairlead.live.job_ends.ends import JobEnds
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.lost_work import LostWorkWarnings
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.overheads import LeaseOverheads
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.model import events as ev
from fairlead.model.arrays import FloatArray
from fairlead.model.lease_outcome import logged_outcome
from fairlead.store import Change

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 300.0
"""backoff after the first failure (doubled) and after many"""
_EARLY_LOSS_S, _LOST_RETRY_S = 5.0, 1.0
"""a lease lost this early may be lost repeatedly, so its job is held for this long"""
_FENCE_DAMAGED = "fence in the checkpoint directory: lease {} was never launched: remove the file"
_SEEN_S = 5.0
"""an end that is reported so soon was seen by this server"""
_LAUNCH_RETRY_S = 5.0
"""backoff after a failed launch, for instance because the disk is full"""


class LeaseOutcomes:
    """Turns ends of leases into events, and retries failed jobs after a backoff."""

    def __init__(
        self,
        queries: Queries,
        specs: Mapping[str, JobSpec],
        counters: JobCounters,
        suspended_jobs: set[str],
        registry: LeaseRegistry,
        history: HistoryRecorder,
        *,
        notified_urls: AllowedUrls,
        checkpoint_dir: Callable[[str], str],
        clock: Clock,
        inbox: Inbox,
        stream: EventStream,
    ) -> None:
        self._queries, self._specs, self._counters = queries, specs, counters
        self._suspended_jobs, self._registry = suspended_jobs, registry
        self._history = history
        self._inbox, self._stream = inbox, stream
        self.overheads = LeaseOverheads()
        self.messages: dict[str, str] = {}
        """job → message of its last lease"""
        self._lost_work = LostWorkWarnings(counters, self.messages, stream)
        self.ends = JobEnds(
            queries,
            specs,
            suspended_jobs,
            self.messages,
            counters,
            history,
            notified_urls=notified_urls,
            checkpoint_dir=checkpoint_dir,
            clock=clock,
            inbox=inbox,
        )
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """jobs in backoff → the timer of their retry"""

    def lease_ended(self, ended: Ended, ended_at: float | None = None) -> None:
        """Post the end of a lease, now or at the earlier time that is known."""
        changes: list[Change] = []
        closed: list[OpenLease] = []

        def close(now: float) -> Sequence[ev.Event]:
            at = now if ended_at is None else min(ended_at, now)
            lease = self._registry.open.get(ended.lease)
            if lease is not None:
                closed.append(lease)
                self._lost_work.begin(lease.job, lease.number)
            events = self._close(at, ended)
            has_failed = any(isinstance(event, ev.JobFailed) for event in events)
            if lease is not None and (has_failed or ended.ending in ("finished", "failed")):
                message = self.messages.get(lease.job, "")
                changes.append(self._history.exit_change(lease.job, message))
            return events

        def handled() -> Sequence[Change]:
            for lease in closed:
                self._lost_work.warn(lease.job, lease.number)
            return changes

        self._inbox.post(close, handled)

    def steps_saved(self, saved: Saved) -> None:
        """Post the steps that a process has saved after its lease, or the loss of some."""

        def make(at: float) -> Sequence[ev.Event]:
            ended = self._counters.unsaved.get(saved.job)
            if ended is None and self._counters.suspended.lease_of(saved.job) == saved.lease:
                self._lost_work.begin(saved.job, saved.lease)
                return [ev.StepsSaved(at, saved.job, 0.0)]
            if ended is None or ended.record.lease != saved.lease:
                return []
            self._lost_work.begin(saved.job, saved.lease)
            steps = min(saved.steps or 0.0, ended.unsaved)
            return [ev.StepsSaved(at, saved.job, steps, lost=steps < ended.unsaved)]

        def handled() -> Sequence[Change]:
            self._lost_work.warn(saved.job, saved.lease)
            return ()

        self._inbox.post(make, handled)

    def count_saved_steps(self, checkpoint_dir: Callable[[str], str]) -> None:
        """Post the steps that parked processes of an earlier server have saved or lost.

        Its suspended processes have ended with it.
        """
        for job_id, ended in self._counters.unsaved.items():
            steps = checkpoint.saved_steps(checkpoint_dir(job_id))
            self.steps_saved(Saved(ended.record.lease, job_id, steps))
        running = {lease.job for lease in self._registry.open.values()}
        for job_id, lease in self._counters.suspended.leases():
            if job_id not in running:  # else its process has continued, and runs on
                self.steps_saved(Saved(lease, job_id, None))

    def launch_failed(self, ended: Ended) -> None:
        """Post the end of a lease that could not be launched.

        The server failed, not the job: this does not count against the job's retries.
        """
        self._inbox.post(lambda at: self._close(at, ended, retry_s=_LAUNCH_RETRY_S))

    def _close(self, at: float, ended: Ended, retry_s: float | None = None) -> Sequence[ev.Event]:
        lease = self._registry.close(ended.lease)
        if lease is None:
            return []
        if ended.fence is not None and ended.fence > self._queries.lease_bound:
            # Every later lease would be refused as well.
            ended = replace(ended, ending="failed", message=_FENCE_DAMAGED.format(ended.fence))
        self._history.lease_ended(lease, ended, _held_until(at, lease, ended))
        self._announce(at, lease, ended)
        events = self.events_for(at, lease, ended, retry_s=retry_s)
        if ended.steps is not None and ended.ending != "finished":
            # Counts a checkpoint that cannot be true.
            lease.claims.accept_steps(at, max(ended.steps, ended.unsaved or 0.0))
        return events

    def events_for(
        self, at: float, lease: OpenLease, ended: Ended, *, retry_s: float | None = None
    ) -> Sequence[ev.Event]:
        """Return the events of the end of a lease.

        ``retry_s``: retry after this backoff; does not count against the job's retries.
        """
        spec, number = self._specs[lease.job], self._queries.job_number(lease.job)
        outcome, steps = logged_outcome(ended.ending), self.steps(at, lease, ended)
        until = _held_until(at, lease, ended)
        ends = ev.LeasesEnded(
            at,
            np.array([ended.lease]),
            np.array([steps]),
            outcome,
            self._unsaved(at, lease, ended, steps),
            suspended=ended.suspended,
            held_until=None if until == at else np.array([until]),
        )
        claimed = max(steps, ended.steps or 0.0)
        if lease.copy:
            claimed += self._queries.saved_steps(number)
        if ended.ending == "finished" and _is_unchecked(spec, lease, claimed):
            self.messages[lease.job] = self.messages.get(lease.job) or (
                f"finished without reporting a step: --steps {spec.steps} was not checked"
            )
        if ended.ending == "finished" and _is_short(spec, lease, claimed):
            self.messages[lease.job] = (
                f"exited with 0 after {claimed:.10g} of {spec.steps} steps: expected all of them;"
                " correct --steps, or accept it with --allow-short"
            )
            ends = replace(ends, outcome="failed")
            return [ends] if self._queries.has_ended(number) else [ev.JobFailed(at, spec.id), ends]
        if ended.ending != "finished" and self._has_used_its_time(until, spec, lease):
            self.cancel_backoff(spec.id)
            return [ends] if self._queries.has_ended(number) else [ev.JobFailed(at, spec.id), ends]
        if outcome == "lost" and retry_s is None and at - lease.launched_at < _EARLY_LOSS_S:
            retry_s = _LOST_RETRY_S
        active = not self._queries.has_ended(number)
        if not active or (outcome != "failed" and retry_s is None):
            return [ends]
        if lease.copy and self._queries.job_state(number) == JobState.HELD:
            # Another copy failed just before: a round of copies counts as one failure.
            return [replace(ends, outcome="left")]
        # Held before its lease ends, so that it is not started again at once.
        if retry_s is None:
            failures = self._counters.of(spec.id).failures + 1
            if failures > spec.retries:
                self.cancel_backoff(spec.id)
                return [ev.JobFailed(at, spec.id), ends]
            retry_s = min(_FIRST_BACKOFF_S * 2**failures, _MAX_BACKOFF_S)
        self._schedule_retry(spec.id, retry_s)
        return [ev.JobHeld(at, spec.id), ends]

    def _has_used_its_time(self, at: float, spec: JobSpec, lease: OpenLease) -> bool:
        """Return whether a job has held devices for its time limit; note it as its message."""
        held_s = self._counters.held_s_until(spec.id, lease.number, at)
        if spec.time_limit_s is None or held_s < spec.time_limit_s:
            return False
        self.messages[spec.id] = (
            f"time limit: held its devices for {held_s:.1f} s of at most {spec.time_limit_s:g} s"
        )
        return True

    def steps(self, at: float, lease: OpenLease, ended: Ended) -> float:
        """Return the steps of a job after a lease: those in its checkpoint, if they are possible.

        A copy has its own steps only. A finished job without the library has made the steps that
        it printed. The steps of a finished job enter no decision.
        """
        saved, steps = self._queries.saved_steps(self._queries.job_number(lease.job)), ended.steps
        if lease.copy:
            saved = 0.0
        if ended.ending != "finished":
            return max(saved, min(steps or 0.0, lease.claims.possible_steps(at)))
        steps = lease.steps if steps is None else steps
        return max(saved, min(steps, lease.claims.limits.steps))

    def _unsaved(
        self, at: float, lease: OpenLease, ended: Ended, steps: float
    ) -> FloatArray | None:
        """Return the steps that the process of an ended lease is saving, if they are possible."""
        unsaved = min(ended.unsaved or 0.0, lease.claims.possible_steps(at))
        return np.array([unsaved]) if unsaved > steps else None

    def _announce(self, at: float, lease: OpenLease, ended: Ended) -> None:
        if ended.ending in ("finished", "left"):
            self.overheads.record(lease, at)
        message = ended.message
        if not message and ended.ending == "failed" and ended.exit_codes:
            in_container = bool(self._specs[lease.job].container)
            message = failure_text(ended.exit_codes, in_container=in_container)
        state = self._queries.job_state(self._queries.job_number(lease.job))
        if message == ended.switch and state != JobState.ACTIVE:
            message = ""  # its processes were to end anyway
        if message or state != JobState.FAILED:  # a job that failed before keeps its reason
            self.messages[lease.job] = message
        steps = self.steps(at, lease, ended)
        self._stream.log_and_publish(
            "lease.ended", job=lease.job, lease=lease.number, ending=ended.ending, steps=steps
        )

    # -- retries --------------------------------------------------------------------------------

    def resume_backoffs(self) -> None:
        """Retry the jobs whose backoff began under an earlier server."""
        waits = self.ends.dependencies.waits
        for job_id in self._queries.held_jobs():
            if job_id not in self._suspended_jobs and not waits(job_id):
                self._schedule_retry(job_id, 0.0)

    def cancel_backoff(self, job_id: str) -> None:
        """Cancel a job's retry because it was resumed, suspended or has ended."""
        timer = self._timers.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def _schedule_retry(self, job_id: str, wait_s: float) -> None:
        """Retry a job after this backoff instead of an earlier one."""
        self.cancel_backoff(job_id)
        loop = asyncio.get_running_loop()
        self._timers[job_id] = loop.call_later(wait_s, self._inbox.post, self._retry_event(job_id))

    def _retry_event(self, job_id: str) -> EventFactory:
        def make(at: float) -> Sequence[ev.Event]:
            self.cancel_backoff(job_id)
            state = self._queries.job_state(self._queries.job_number(job_id))
            retried = state == JobState.HELD and job_id not in self._suspended_jobs
            return [ev.JobReleased(at, job_id)] if retried else []

        return make


def _held_until(at: float, lease: OpenLease, ended: Ended) -> float:
    """Return the time at which a lease's devices were given up.

    If no server ran then, that was before the end is known. The lease of an earlier server whose
    processes were lost meanwhile did not outlive its round.
    """
    until = at if ended.at is None else ended.at
    if ended.ending == "lost" and math.isnan(lease.launched_at):
        until = min(until, lease.until)
    return at if at - until < _SEEN_S else until


def _is_short(spec: JobSpec, lease: OpenLease, steps: float) -> bool:
    """Return whether a job has exited before its declared steps; unknown steps do not tell."""
    if spec.steps is None or spec.allow_short:
        return False
    return _reports_steps(spec, lease, steps) and steps < spec.steps


def _is_unchecked(spec: JobSpec, lease: OpenLease, steps: float) -> bool:
    """Return whether a job has exited without steps to compare with its declared ones."""
    if spec.steps is None or spec.allow_short:
        return False
    return not _reports_steps(spec, lease, steps)


def _reports_steps(spec: JobSpec, lease: OpenLease, steps: float) -> bool:
    uses_library = lease.last_heartbeat_at is not None
    return uses_library or spec.progress_pattern is not None or steps > 0
