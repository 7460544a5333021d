"""What follows for a job from the end of a lease's processes: it goes on, waits, or has failed."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.engines.base import Ended
from fairlead.live.accounting import Ledger
from fairlead.live.inbox import Make, Queue
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 300.0
"""before a job that failed tries again, the first time and after many"""
_SOON_LOST_S, _LOST_RETRY_S = 5.0, 1.0
"""a lease lost so soon after its start may be lost again and again: its job waits so long"""
_OUTCOME: dict[str, ev.Outcome] = {
    "finished": "finished",
    "left": "left",
    "failed": "failed",
    "lost": "lost",
    "refused": "lost",
}


class LeaseOutcomes:
    """Turns ends of leases into events, and lets jobs that failed try again."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        specs: Mapping[str, JobSpec],
        ledger: Ledger,
        suspended_jobs: Collection[str],
        queue: Queue,
    ) -> None:
        self._scheduler, self._specs, self._ledger = scheduler, specs, ledger
        self._held_by_user, self._queue = suspended_jobs, queue
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """jobs that wait after a failure → what lets them try again"""

    def of(
        self, at: float, lease: OpenLease, ended: Ended, *, again_s: float | None = None
    ) -> Sequence[ev.Event]:
        """Return what follows when a lease that was open has ended.

        ``again_s``: the failure was ours and does not count against the job's retries; it tries
        again after so long.
        """
        jobs, spec = self._scheduler.jobs, self._specs[lease.job]
        number = jobs.number[lease.job]
        outcome, steps = _OUTCOME[ended.ending], self.steps(lease, ended)
        ends = ev.LeasesEnded(at, np.array([ended.lease]), np.array([steps]), outcome)
        if outcome == "lost" and again_s is None and at - lease.launched_at < _SOON_LOST_S:
            again_s = _LOST_RETRY_S
        active = jobs.state[number] in (JobState.ACTIVE, JobState.HELD)
        if not active or (outcome != "failed" and again_s is None):
            return [ends]
        # Held before its lease ends, so that it is not started again at once.
        if again_s is None:
            failures = self._ledger.of(spec.id).failures + 1
            if failures > spec.retries:
                self.cancel_backoff(spec.id)
                return [ev.JobFailed(at, spec.id), ends]
            again_s = min(_FIRST_WAIT_S * 2**failures, _LONGEST_WAIT_S)
        self._schedule_retry(spec.id, again_s)
        return [ev.JobHeld(at, spec.id), ends]

    def steps(self, lease: OpenLease, ended: Ended) -> float:
        """Return the steps that a lease leaves to its job.

        A job without the library that has finished has made those that it told of.
        """
        jobs = self._scheduler.jobs
        steps = max(float(jobs.saved_steps[jobs.number[lease.job]]), ended.steps or 0.0)
        if ended.ending == "finished" and ended.steps is None:
            steps = max(steps, lease.steps)
        return steps

    def resume_backoffs(self) -> None:
        """Let jobs try again whose wait after a failure an earlier server has begun."""
        jobs = self._scheduler.jobs
        for number in (jobs.state[: len(jobs)] == JobState.HELD).nonzero()[0].tolist():
            if jobs.ids[number] not in self._held_by_user:
                self._schedule_retry(jobs.ids[number], 0.0)

    def cancel_backoff(self, job_id: str) -> None:
        """Forget a job's wait after a failure: it was released, suspended or has ended."""
        timer = self._timers.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def _schedule_retry(self, job_id: str, wait_s: float) -> None:
        """Let a job try again after this wait, and not after an earlier one."""
        self.cancel_backoff(job_id)
        loop = asyncio.get_running_loop()
        self._timers[job_id] = loop.call_later(wait_s, self._queue.put, self._retry_event(job_id))

    def _retry_event(self, job_id: str) -> Make:
        def make(at: float) -> Sequence[ev.Event]:
            self.cancel_backoff(job_id)
            jobs = self._scheduler.jobs
            held = jobs.state[jobs.number[job_id]] == JobState.HELD
            by_user = job_id in self._held_by_user
            return [ev.JobReleased(at, job_id)] if held and not by_user else []

        return make
