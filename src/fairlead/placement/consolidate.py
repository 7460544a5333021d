"""Placement that keeps jobs where they are and consolidates gangs (Gavel §5)."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.plan import Assignments


def place(
    cluster: Cluster,
    usable: IntArray,
    running: Assignments,
    job: IntArray,
    accelerator: IntArray,
    gang: IntArray,
) -> Assignments:
    """Return devices for units of one job each, which must fit the usable devices by number.

    A job that runs on the wanted accelerator keeps its devices. Of the others, larger gangs
    choose first, each taking the node it fits most tightly, or else the nodes with most room.
    """
    stays, kept_device = _keep(cluster, usable, running, job, accelerator, gang)
    moving = np.flatnonzero(~stays)
    order = np.concatenate([np.flatnonzero(stays), moving])
    if not len(moving):
        return _assignments(job[order], gang[order], kept_device)
    free = np.zeros(len(cluster.accelerator_of), dtype=bool)
    free[usable] = True
    free[kept_device] = False
    if len(cluster.nodes) == len(cluster.accelerators):
        # One node to each accelerator: every placement is as good as any other.
        moving = moving[np.argsort(accelerator[moving], kind="stable")]
        device = _any_device(cluster, free, accelerator[moving], gang[moving])
    else:
        by_size = np.lexsort((moving, accelerator[moving], -gang[moving]))
        moving = moving[by_size]
        device = _tightest_nodes(cluster, free, accelerator[moving], gang[moving])
    order[len(order) - len(moving) :] = moving
    return _assignments(job[order], gang[order], np.concatenate([kept_device, device]))


def _assignments(job: IntArray, gang: IntArray, device: IntArray) -> Assignments:
    start = np.zeros(len(job) + 1, dtype=np.int64)
    np.cumsum(gang, out=start[1:])
    return Assignments.single(job, start, device)


def _keep(
    cluster: Cluster,
    usable: IntArray,
    running: Assignments,
    job: IntArray,
    accelerator: IntArray,
    gang: IntArray,
) -> tuple[np.ndarray, IntArray]:
    """Tell which jobs stay on the devices they hold, and list these devices in job order."""
    nothing = np.zeros(0, dtype=np.int64)
    if not len(running) or not len(job):
        return np.zeros(len(job), dtype=bool), nothing
    size = running.size
    kind = cluster.accelerator_of[running.device]
    first = running.start[:-1]
    up = np.zeros(len(cluster.accelerator_of), dtype=bool)
    up[usable] = True
    sound = np.logical_and.reduceat(
        (kind == np.repeat(kind[first], size)) & up[running.device], first
    )
    alone = (running.members >= 0).sum(axis=1) == 1
    sound &= alone & (running.copy == 0)
    unit_of = np.full(int(max(running.members.max(), job.max())) + 1, -1, dtype=np.int64)
    unit_of[running.members[sound, 0]] = np.flatnonzero(sound)
    unit = unit_of[job]
    stays = (unit >= 0) & (kind[first][unit] == accelerator) & (size[unit] == gang)
    unit = unit[stays]
    count = size[unit]
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return stays, running.device[np.repeat(first[unit], count) + offset]


def _any_device(
    cluster: Cluster, free: np.ndarray, accelerator: IntArray, gang: IntArray
) -> IntArray:
    wanted = np.bincount(accelerator, weights=gang, minlength=len(cluster.accelerators))
    parts = [
        np.flatnonzero(free & (cluster.accelerator_of == j))[: int(wanted[j])]
        for j in np.flatnonzero(wanted).tolist()
    ]
    return np.concatenate(parts)


def _tightest_nodes(
    cluster: Cluster, free: np.ndarray, accelerator: IntArray, gang: IntArray
) -> IntArray:
    room: dict[int, dict[int, list[int]]] = {}
    for device in np.flatnonzero(free)[::-1].tolist():
        kind, node = int(cluster.accelerator_of[device]), int(cluster.node_of[device])
        room.setdefault(kind, {}).setdefault(node, []).append(device)
    taken: list[int] = []
    for kind, size in zip(accelerator.tolist(), gang.tolist(), strict=True):
        nodes = room[kind]
        left = size
        while left:
            fitting = [(len(devices), node) for node, devices in nodes.items() if len(devices) >= left]
            node = min(fitting)[1] if fitting else max(nodes, key=lambda n: (len(nodes[n]), -n))
            devices = nodes[node]
            for _ in range(min(left, len(devices))):
                taken.append(devices.pop())
                left -= 1
            if not devices:
                del nodes[node]
    return np.array(taken, dtype=np.int64)
