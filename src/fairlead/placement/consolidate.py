"""Placement that keeps jobs where they are and consolidates gangs (Gavel §5)."""

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.plan import NOBODY
from fairlead.model.snapshot import Snapshot


def place(snap: Snapshot, devices: IntArray, wanted: IntArray) -> IntArray:
    """Return lanes × devices → job, for jobs (rows) that want an accelerator, -1 for none.

    They must fit ``devices`` by number. A job that runs on the wanted accelerator keeps its
    devices. Of the others, larger gangs choose first, each taking the node it fits most
    tightly, or else the nodes with most room.
    """
    cluster = snap.cluster
    free = np.zeros(len(cluster.accelerator_of), dtype=bool)
    free[devices] = True
    stays = _staying_devices(snap, free, wanted)
    holder = snap.holds[0]
    job = np.append(snap.job, NOBODY)  # row -1 is nobody
    holds = np.where(stays, job[holder], NOBODY)
    moves = wanted >= 0
    moves[holder[stays]] = False
    moving = moves.nonzero()[0]
    if len(moving):
        free &= ~stays
        arrange = _any_device if cluster.one_node_each else _tightest_nodes
        row, device = arrange(cluster, free, wanted[moving], snap.gang[moving])
        holds[device] = job[moving[row]]
    return holds.reshape(1, -1)


def _staying_devices(snap: Snapshot, free: BoolArray, wanted: IntArray) -> BoolArray:
    """devices → its job stays on it: it wants this accelerator and holds all it needs."""
    if len(snap.holds) > 1:
        # Packed before, alone now: whether a job can stay depends on its partners, so it moves.
        return np.zeros(len(free), dtype=bool)
    holder = snap.holds[0]
    stays: BoolArray = (wanted[holder] == snap.cluster.accelerator_of) & (holder >= 0) & free
    if not snap.profiles.single:
        held = np.bincount(holder[stays], minlength=len(wanted))
        stays &= (held == snap.gang)[holder]
    return stays


def _any_device(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    """Place jobs where every device of an accelerator is as good as any other."""
    by_kind = cluster.by_accelerator
    open_devices = by_kind[free[by_kind]]
    kinds = len(cluster.accelerators)
    room = np.bincount(cluster.accelerator_of[open_devices], minlength=kinds)
    order = wanted.argsort(kind="stable")
    row = order.repeat(gang[order])
    kind = wanted[row]
    skip = room - np.bincount(kind, minlength=kinds)
    skip = skip.cumsum() - skip
    return row, open_devices[np.arange(len(row)) + skip[kind]]


def _tightest_nodes(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    room: dict[int, dict[int, list[int]]] = {}
    for device in free.nonzero()[0][::-1].tolist():
        kind, node = int(cluster.accelerator_of[device]), int(cluster.node_of[device])
        room.setdefault(kind, {}).setdefault(node, []).append(device)
    rows: list[int] = []
    taken: list[int] = []
    for row in (-gang).argsort(kind="stable").tolist():
        nodes = room[int(wanted[row])]
        left = int(gang[row])
        rows += [row] * left
        while left:
            fitting = [(len(here), node) for node, here in nodes.items() if len(here) >= left]
            node = min(fitting)[1] if fitting else max(nodes, key=lambda n: (len(nodes[n]), -n))
            here = nodes[node]
            count = min(left, len(here))
            taken += here[: -count - 1 : -1]
            del here[-count:]
            left -= count
            if not here:
                del nodes[node]
    return np.array(rows, dtype=np.int64), np.array(taken, dtype=np.int64)
