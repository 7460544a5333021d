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
    holds = np.full((1, len(cluster.accelerator_of)), NOBODY, dtype=np.int64)
    free = np.zeros(len(cluster.accelerator_of), dtype=bool)
    free[devices] = True
    stays = _keep(snap, free, wanted, holds[0])
    moving = ((wanted >= 0) & ~stays).nonzero()[0]
    if len(moving):
        gang = snap.gang[moving]
        if len(cluster.nodes) == len(cluster.accelerators):
            row, device = _any_device(cluster, free, wanted[moving], gang)
        else:
            row, device = _tightest_nodes(cluster, free, wanted[moving], gang)
        holds[0, device] = snap.job[moving[row]]
    return holds


def _keep(snap: Snapshot, free: BoolArray, wanted: IntArray, holds: IntArray) -> BoolArray:
    """Enter jobs that stay on their devices; take these from the free ones; tell who stays."""
    stays = np.zeros(len(wanted), dtype=bool)
    if len(snap.holds) > 1:
        # Packed before, alone now: whether it can stay depends on its partners, so it moves.
        return stays
    held = snap.holds[0]
    where = ((held >= 0) & free).nonzero()[0]
    row = held[where]
    right = wanted[row] == snap.cluster.accelerator_of[where]
    gang = snap.gang
    if (gang > 1).any():
        whole = np.bincount(row[right], minlength=len(wanted)) == gang
        right &= whole[row]
    where, row = where[right], row[right]
    stays[row] = True
    holds[where] = snap.job[row]
    free[where] = False
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
    needed = np.bincount(kind, minlength=kinds)
    skip = (room.cumsum() - room) - (needed.cumsum() - needed)
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
