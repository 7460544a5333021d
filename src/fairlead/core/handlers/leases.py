"""Handlers of lease reports: progress, measurements and ends."""

import math
from typing import Any

import numpy as np

from fairlead.core.copies import made_all_steps, merge_ended_copies, record_copy_steps
from fairlead.core.jobs import JobState
from fairlead.core.launches import launch_ready, plan_or_refill, preempt
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.commands import Command, MergeCopies
from fairlead.model.speeds.key import SpeedKey, scope_of
from fairlead.model.speeds.measured import Selection
from fairlead.model.speeds.placement import fits_one_node


def progress(state: SchedulerState[Any], event: ev.Progress) -> list[Command]:
    """Record the steps that running jobs have made."""
    leases, capacity = state.leases, state.nodes.capacity
    slots = leases.slots(event.lease)
    job, steps = leases.job[slots], event.steps
    if leases.own_steps:
        whole = leases.copy[slots] == 0
        record_copy_steps(state.jobs, leases, slots[~whole], steps[~whole], capacity)
        job, steps = job[whole], steps[whole]
    steps = np.maximum(state.jobs.steps[job], steps)
    state.jobs.advance(job, steps, capacity)
    return []


def measured(state: SchedulerState[Any], event: ev.Measured) -> list[Command]:
    """Keep a job's measurements for mechanisms that read them; beliefs stay as they are."""
    missing = math.nan
    utilization, memory = event.utilization, event.memory_gib
    report = ev.JobsMeasured(
        event.at,
        np.array([event.lease]),
        np.array([event.steps_per_s]),
        np.array([missing if utilization is None else utilization]),
        np.array([missing if memory is None else memory]),
    )
    return jobs_measured(state, report)


def jobs_measured(state: SchedulerState[Any], event: ev.JobsMeasured) -> list[Command]:
    """Keep jobs' measurements for mechanisms that read them; beliefs stay as they are."""
    slots = state.leases.slots(event.lease)
    if state.capabilities.reads_measured and len(slots):
        columns = event.lease, event.steps_per_s, event.utilization, event.memory_gib
        reports = np.column_stack([np.full(len(slots), event.at), *columns])
        state.jobs.store_measurements(state.leases.job[slots], reports)
    return []


def restart_measured(state: SchedulerState[Any], event: ev.RestartMeasured) -> list[Command]:
    """Keep the cost of a job's restart for mechanisms that weigh it; allocations stand."""
    state.restarts.record(state.jobs.find(event.job_id), event.seconds)
    return []


def speed_measured(state: SchedulerState[Any], event: ev.SpeedMeasured) -> list[Command]:
    """Believe the measured speed from the next plan on."""
    placement = event.placement or "consolidated"
    key = SpeedKey(event.workload, event.gang, event.accelerator, placement, event.partner)
    on_one_node = event.placement == "consolidated" and fits_one_node(
        state.cluster, event.accelerator, event.gang
    )
    state.measured_speeds.record(key, event.steps_per_s, event.at, on_one_node=on_one_node)
    state.use_measured_speeds()
    scope = scope_of(event.workload)
    if scope is not None and scope.job is not None:
        state.jobs.separate_profile(scope.job)
    state.changes += 1
    return []


def speeds_forgotten(state: SchedulerState[Any], event: ev.SpeedsForgotten) -> list[Command]:
    """Believe the table and the estimates again, from the next plan on."""
    state.measured_speeds.forget(Selection(event.tenant, event.workload, event.accelerator))
    state.use_measured_speeds()
    state.changes += 1
    return []


def leases_pinned(state: SchedulerState[Any], event: ev.LeasesPinned) -> list[Command]:
    """Keep exactly these leases in place from the next plan on."""
    state.leases.pin_only(state.leases.slots(event.lease))
    state.changes += 1
    return []


def leases_ended(state: SchedulerState[Any], event: ev.LeasesEnded) -> list[Command]:
    """Close leases, start the placements that waited for their devices, and replan if needed."""
    jobs, leases = state.jobs, state.leases
    slots = leases.slots(event.lease)
    job = leases.job[slots]
    leases.credit(slots, job, event.at, jobs.numbers)
    commands: list[Command] = []
    changes, vacated = state.changes, NO_INTS
    # Members leave unasked when the server was down for longer than their lease.
    preempted = bool(leases.leaving[slots].all())
    if event.outcome != "left" or not preempted or _on_lost_nodes(state, slots):
        state.changes += 1
    else:
        vacated = _unplanned_devices(state, slots)
    if leases.own_steps:
        commands += _close_copies(state, slots, event.steps)
    else:
        leases.close(slots)
        _store_checkpointed_steps(state, job, event.steps, event.unsaved)
    if event.outcome == "finished":
        for number in job.tolist():
            # A job cancelled during its last step, or finished by another copy, has ended already.
            if not jobs.has_ended(number):
                jobs.deactivate(number, JobState.FINISHED)
                commands += preempt(state, leases.of_job(number))
    if len(state.waiting) and state.changes != changes:
        # A job that was to move may have finished instead of leaving.
        active = jobs.state[state.waiting.job] == JobState.ACTIVE
        state.waiting = state.waiting.where(active)
    commands += launch_ready(state, event.at)
    unclaimed = len(vacated) and np.isin(vacated, state.idle_devices()).any()
    if unclaimed or state.changes != changes:
        commands += plan_or_refill(state, event.at)
    return commands


def steps_saved(state: SchedulerState[Any], event: ev.StepsSaved) -> list[Command]:
    """Record the steps in the checkpoint of a job whose process stayed; take the others back."""
    job, steps = np.array([state.jobs.find(event.job_id)]), np.array([event.steps])
    # A lease that has begun meanwhile may have reported later steps.
    _store_checkpointed_steps(state, job, steps, None if event.lost else state.jobs.steps[job])
    return []


def _store_checkpointed_steps(
    state: SchedulerState[Any], job: IntArray, steps: FloatArray, unsaved: FloatArray | None = None
) -> None:
    """Record the total steps in jobs' checkpoints, and those that are made but not saved yet."""
    saved = np.maximum(state.jobs.saved_steps[job], steps)
    made = saved if unsaved is None else np.maximum(saved, unsaved)
    if state.capabilities.reads_progress:
        state.jobs.advance(job, made, state.nodes.capacity)
    state.jobs.saved_steps[job] = saved
    state.jobs.steps[job] = made


def _close_copies(state: SchedulerState[Any], slots: IntArray, steps: FloatArray) -> list[Command]:
    """Close leases, copies among them; merge the copies of jobs whose last lease ended."""
    jobs, leases = state.jobs, state.leases
    job, whole = leases.job[slots], leases.copy[slots] == 0
    merge_ended_copies(jobs, leases, slots[~whole], steps[~whole], state.nodes.capacity)
    leases.close(slots)
    _store_checkpointed_steps(state, job[whole], steps[whole])
    commands: list[Command] = []
    for number in np.unique(job[~whole]).tolist():
        done = made_all_steps(jobs, number)
        if done and not jobs.has_ended(number):
            jobs.deactivate(number, JobState.FINISHED)
            state.changes += 1
            commands += preempt(state, leases.of_job(number))
        if not len(leases.of_job(number)):
            commands.append(MergeCopies(number))
    return commands


def _unplanned_devices(state: SchedulerState[Any], slots: IntArray) -> IntArray:
    """Return the devices of ending leases for which the plan may have no successor.

    The job that it placed there may have ended since the plan was requested.
    """
    if state.changes == state.planned_from:
        return NO_INTS
    held: BoolArray = np.logical_or.reduce(np.isin(state.leases.holder, slots), axis=0)
    return held.nonzero()[0]


def _on_lost_nodes(state: SchedulerState[Any], slots: IntArray) -> bool:
    """Return whether any of these leases is on a lost node: no plan expected its end."""
    if not state.nodes.down:
        return False
    on_lost = state.leases.on_devices(~state.nodes.is_up)
    return bool(np.isin(slots, on_lost).any())
