"""Reasons for which Gandiva's elastic jobs hold the devices that they hold."""

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaJob, GandivaMemory, tasks_of
from fairlead.model.snapshot import Snapshot


def gang_reason(
    snap: Snapshot, memory: GandivaMemory, job: int, *, growth: bool, grow_after_s: float
) -> str:
    """Return why a running elastic job has its present size; empty for all other jobs."""
    task = tasks_of(snap, memory)[job]
    held = (snap.holds == task.row).any(axis=0)
    size = int(held.sum())
    if not size or not task.elastic:
        return ""
    nodes, node_of = np.unique(snap.cluster.node_of[held]), snap.cluster.node_of[snap.usable]
    is_idle = (snap.holds[:, snap.usable] < 0).all(axis=0)
    has_idle = bool((is_idle & np.isin(node_of, nodes)).any())
    quiet = f"no job has come to its node or left it for {grow_after_s:g} s"
    if len(nodes) > 1:
        reason = "a gang over several nodes keeps its size"
    elif size > task.gang:
        reason = f"it grew beyond its gang of {task.gang}, since {quiet}"
    elif size < task.gang:
        reason = f"it shrank below its gang of {task.gang}, since other jobs use its node"
    else:
        reason = _no_growth(task, growth=growth, has_idle=has_idle)
        reason = reason or f"it grows once {quiet}, unless jobs wait"
    text = f"It holds {size} of {task.floor} to {task.ceiling} devices: {reason}."
    if int(task.size) not in (0, size):
        text += f" It changes to {int(task.size)} now."
    return text


def _no_growth(task: GandivaJob, *, growth: bool, has_idle: bool) -> str:
    """Return why a job of the size of its gang does not grow; empty if it will."""
    if task.gang == task.ceiling:
        return "that is its maximum"
    if task.enough <= task.gang:
        return "with more devices it was measured to be no faster"
    if not growth:
        return "growth is switched off"
    return "" if has_idle else "no device of its node is idle"
