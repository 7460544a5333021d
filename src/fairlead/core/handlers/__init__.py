"""Event handlers: each updates the scheduler's state and returns commands."""

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.core.handlers import jobs, leases, nodes, rounds
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model import events as ev
from fairlead.model.commands import Command

HANDLERS: Mapping[type, Callable[[SchedulerState[Any], Any], list[Command]]] = {
    ev.JobSubmitted: jobs.job_submitted,
    ev.JobCancelled: jobs.job_cancelled,
    ev.JobHeld: jobs.job_held,
    ev.JobReleased: jobs.job_released,
    ev.JobFailed: jobs.job_failed,
    ev.JobChanged: jobs.job_changed,
    ev.JobsRemoved: jobs.jobs_removed,
    ev.TenantChanged: jobs.tenant_changed,
    ev.HistoryChanged: jobs.history_changed,
    ev.Progress: leases.progress,
    ev.LeasesEnded: leases.leases_ended,
    ev.StepsSaved: leases.steps_saved,
    ev.LeasesPinned: leases.leases_pinned,
    ev.Measured: leases.measured,
    ev.JobsMeasured: leases.jobs_measured,
    ev.RestartMeasured: leases.restart_measured,
    ev.SpeedMeasured: leases.speed_measured,
    ev.SpeedsForgotten: leases.speeds_forgotten,
    ev.NodeLost: nodes.node_lost,
    ev.NodeDrained: nodes.node_lost,
    ev.NodeReturned: nodes.node_returned,
    ev.NodeAdded: nodes.node_added,
    ev.NodeRemoved: nodes.node_removed,
    ev.NodeRestored: nodes.node_restored,
    ev.NodeCordoned: nodes.node_cordoned,
    ev.DevicesTaken: nodes.devices_taken,
    ev.PlanDue: rounds.plan_due,
    ev.PlanReady: rounds.plan_ready,
    ev.RoundEnd: rounds.round_end,
}

__all__ = ["HANDLERS"]
