"""Rounds that leave every lease as it is, taken at once instead of event by event."""

from typing import Any

import numpy as np

from fairlead.core.jobs import MEASURED_AT
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model.arrays import FloatArray


def may_repeat_round(state: SchedulerState[Any]) -> bool:
    """Return whether rounds depend on nothing but the mechanism while jobs run.

    True only right after a plan for the tables as they are, with no effect of time on them but
    the time that jobs receive.
    """
    return state.planned_epoch == state.leases.next_epoch and may_skip_events(state)


def may_skip_events(state: SchedulerState[Any]) -> bool:
    """Return whether only the last plan has changed the tables, and time has no other effect."""
    leases, nodes = state.leases, state.nodes
    return (
        state.planned_from == state.changes
        and len(leases) > 0
        and leases.simple
        and not leases.leaving_count
        and not nodes.keeps_jobs(leases)
        and not (len(state.waiting) or state.planning or state.pending or state.left_out)
        and not state.plan_lead_s
        and state.usage.history is None
        and state.beliefs.trials is None
        and state.limits() is None
        and not any(tenant.guarantee for tenant in state.jobs.tenants)
    )


def time_received(state: SchedulerState[Any], starts_at: FloatArray) -> FloatArray:
    """Return rounds × running jobs × accelerators → seconds of holding devices by then.

    Jobs are in ascending order.
    """
    jobs, leases = state.jobs, state.leases
    slots = leases.active_slots
    slots = slots[leases.job[slots].argsort()]
    row = np.arange(len(slots))
    received_s = jobs.received_s[leases.job[slots]]
    by_round = np.broadcast_to(received_s, (len(starts_at), *received_s.shape)).copy()
    by_round[:, row, jobs.on[leases.job[slots]]] += starts_at[:, None] - leases.counted_at[slots]
    return by_round


def repeat_rounds(
    state: SchedulerState[Any], starts_at: FloatArray, until: float, memory: Any
) -> None:
    """Bring the state to that after rounds from these times on, the last one until ``until``.

    Every job was measured at each of these times, with the same results as before.
    """
    state.version += len(starts_at)
    state.memory, state.round_end_at = memory, until
    if state.capabilities.reads_measured:
        state.jobs.measured[state.jobs.active, MEASURED_AT] = starts_at[-1]
