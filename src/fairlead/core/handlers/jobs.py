"""Handlers of job and tenant events."""

from typing import Any

from fairlead.core.jobs import JobState
from fairlead.core.launches import plan_or_refill, preempt
from fairlead.core.scheduler_state import SchedulerState
from fairlead.core.tenant_usage import Usage
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS
from fairlead.model.commands import Command
from fairlead.model.lease import NO_PLACEMENTS


def job_submitted(state: SchedulerState[Any], event: ev.JobSubmitted) -> list[Command]:
    """Admit a job; unless it is held, it may use idle devices at once."""
    number = state.jobs.add(event.job)
    if event.held:
        state.jobs.deactivate(number, JobState.HELD)
        return []
    state.changes += 1
    return [] if event.more else plan_or_refill(state, event.at)


def job_cancelled(state: SchedulerState[Any], event: ev.JobCancelled) -> list[Command]:
    """Preempt a cancelled job."""
    return _deactivate(state, event, JobState.CANCELLED, more=event.more)


def job_held(state: SchedulerState[Any], event: ev.JobHeld) -> list[Command]:
    """Preempt a job and hold it until it is released."""
    return _deactivate(state, event, JobState.HELD, more=event.more)


def job_failed(state: SchedulerState[Any], event: ev.JobFailed) -> list[Command]:
    """Preempt a job that has used up its retries."""
    return _deactivate(state, event, JobState.FAILED)


def _deactivate(
    state: SchedulerState[Any],
    event: ev.JobCancelled | ev.JobHeld | ev.JobFailed,
    job_state: JobState,
    *,
    more: bool = False,
) -> list[Command]:
    number = state.jobs.find(event.job_id)
    state.jobs.deactivate(number, job_state)
    state.changes += 1
    state.waiting = state.waiting.where(state.waiting.job != number)
    preempted = preempt(state, state.leases.of_job(number))
    return preempted if more else [*preempted, *plan_or_refill(state, event.at)]


def job_released(state: SchedulerState[Any], event: ev.JobReleased) -> list[Command]:
    """Schedule a held job again."""
    number = state.jobs.find(event.job_id)
    state.jobs.continue_from(number, event.steps)
    state.jobs.release(number)
    state.changes += 1
    return [] if event.more else plan_or_refill(state, event.at)


def job_changed(state: SchedulerState[Any], event: ev.JobChanged) -> list[Command]:
    """Replace a job's description; the next plan uses it."""
    state.jobs.change(event.job)
    state.changes += 1
    return []


def jobs_removed(state: SchedulerState[Any], event: ev.JobsRemoved) -> list[Command]:
    """Drop the descriptions of ended jobs; no decision changes."""
    state.jobs.remove(event.job_ids)
    return []


def tenant_changed(state: SchedulerState[Any], event: ev.TenantChanged) -> list[Command]:
    """Replace a tenant; placements beyond its new limit no longer wait."""
    state.jobs.set_tenant(event.tenant)
    state.changes += 1
    limits = state.limits()
    if limits:
        may = limits.enforce(NO_INTS, NO_PLACEMENTS, state.waiting)[1]
        state.waiting = state.waiting.where(may)
    return []


def history_changed(state: SchedulerState[Any], event: ev.HistoryChanged) -> list[Command]:
    """Count usage from now on by another rule; forget earlier usage."""
    state.usage = Usage()
    state.usage.history = event.history
    state.usage.counted_at = event.at
    if event.history is not None and len(state.jobs):
        state.usage.set_baseline(state.snapshot_builder.used(event.at, state.usage))
    state.changes += 1
    return []
