"""Handlers of node events."""

from typing import Any

import numpy as np

from fairlead.core.launches import plan_or_refill, preempt
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model import events as ev
from fairlead.model.commands import Command, SetTimer


def node_added(state: SchedulerState[Any], event: ev.NodeAdded) -> list[Command]:
    """Extend the tables by a node's devices."""
    accelerators = state.cluster.accelerators
    state.cluster = cluster = state.cluster.with_node(event.node)
    state.nodes.extend_cluster(cluster)
    state.jobs.extend_cluster(cluster, state.nodes.permanent_devices)
    state.leases.extend_cluster(cluster)
    state.changes += 1
    if state.cluster.accelerators == accelerators:
        return plan_or_refill(state, event.at)
    # The mechanism's memory has a column per accelerator, so it starts empty and a new round
    # begins now; a plan made from the old memory is not waited for.
    state.end_round()
    return [SetTimer("PlanDue", event.at), SetTimer("RoundEnd", None)]


def node_removed(state: SchedulerState[Any], event: ev.NodeRemoved) -> list[Command]:
    """Preempt all leases on a removed node; reject later jobs that need it."""
    state.nodes.mark_removed(event.node)
    state.jobs.set_permanent_devices(state.nodes.permanent_devices)
    return _preempt_on_lost_nodes(state)


def node_restored(state: SchedulerState[Any], event: ev.NodeRestored) -> list[Command]:
    """Treat a removed node as one that may return, so that jobs wait for it."""
    state.nodes.mark_restored(event.node)
    state.jobs.set_permanent_devices(state.nodes.permanent_devices)
    state.changes += 1
    return []


def node_lost(state: SchedulerState[Any], event: ev.NodeLost | ev.NodeDrained) -> list[Command]:
    """Preempt all leases on a lost or drained node."""
    state.nodes.mark_lost(event.node)
    return _preempt_on_lost_nodes(state)


def _preempt_on_lost_nodes(state: SchedulerState[Any]) -> list[Command]:
    state.changes += 1
    lost = ~state.nodes.is_up
    state.waiting = state.waiting.where(~state.waiting.any_device(lost))
    return preempt(state, state.leases.on_devices(lost))


def node_returned(state: SchedulerState[Any], event: ev.NodeReturned) -> list[Command]:
    """Use a node's devices again."""
    state.nodes.mark_returned(event.node)
    state.changes += 1
    return plan_or_refill(state, event.at)


def node_cordoned(state: SchedulerState[Any], event: ev.NodeCordoned) -> list[Command]:
    """Start nothing new on a cordoned node, or use it again."""
    state.nodes.set_cordoned(event.node, event.cordoned)
    return _replan_after_node_change(state, event.at)


def devices_taken(state: SchedulerState[Any], event: ev.DevicesTaken) -> list[Command]:
    """Start nothing new on devices that other users hold; use the node's other devices.

    Leases on missing devices are preempted.
    """
    state.nodes.set_taken(event.node, event.numbers)
    stopping: list[Command] = []
    if event.gone:
        gone = np.zeros(len(state.nodes.taken), dtype=bool)
        gone[state.nodes.devices_on(event.node)[list(event.numbers)]] = True
        stopping = preempt(state, state.leases.on_devices(gone))
    return [*stopping, *_replan_after_node_change(state, event.at)]


def _replan_after_node_change(state: SchedulerState[Any], at: float) -> list[Command]:
    state.changes += 1
    state.waiting = state.waiting.where(~state.waiting.any_device(~state.nodes.is_open))
    return plan_or_refill(state, at)
