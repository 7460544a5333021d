"""Placement that keeps jobs where they are and consolidates gangs (Gavel §5)."""

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import NOTHING, Placements
from fairlead.model.snapshot import Snapshot


def move(snap: Snapshot, wanted: IntArray) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the jobs to start so that rows hold what they want.

    ``wanted`` is rows → accelerator, -1 for none. A job that already holds devices of the
    wanted accelerator keeps them.
    """
    changed = wanted != snap.on
    stopping = (changed & (snap.on != -1)).nonzero()[0]
    starting = (changed & (wanted >= 0)).nonzero()[0]
    if not len(starting):
        return snap.lease[stopping], NOTHING
    # Row -1 is nobody; who only waits for its devices is placed anew.
    stays = np.append(snap.on != -1, False)
    stays[stopping] = False
    free: BoolArray = ~np.logical_or.reduce(stays[snap.holds], axis=0)
    if len(snap.usable) < len(free):
        up = np.zeros(len(free), dtype=bool)
        up[snap.usable] = True
        free &= up
    return snap.lease[stopping], place(snap, free, starting, wanted[starting])


def place(snap: Snapshot, free: BoolArray, rows: IntArray, wanted: IntArray) -> Placements:
    """Return free devices of the wanted accelerators for these jobs, which must fit by number.

    Larger gangs choose first, each taking the node it fits most tightly, or else the nodes with
    most room.
    """
    cluster = snap.cluster
    gang = snap.gang[rows]
    arrange = _any_device if cluster.one_node_each else _tightest_nodes
    order, device = arrange(cluster, free, wanted, gang)
    start = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(gang[order], out=start[1:])
    return Placements(snap.job[rows[order]], np.zeros_like(rows), start, device)


def _any_device(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    """Place jobs where every device of an accelerator is as good as any other."""
    by_kind = cluster.by_accelerator
    open_devices = by_kind[free[by_kind]]
    kinds = len(cluster.accelerators)
    order = wanted.argsort(kind="stable")
    kind = wanted[order].repeat(gang[order])
    room = np.bincount(cluster.accelerator_of[open_devices], minlength=kinds)
    skip = room - np.bincount(kind, minlength=kinds)
    skip = skip.cumsum() - skip
    return order, open_devices[np.arange(len(kind)) + skip[kind]]


def _tightest_nodes(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    room: dict[int, dict[int, list[int]]] = {}
    for device in free.nonzero()[0][::-1].tolist():
        kind, node = int(cluster.accelerator_of[device]), int(cluster.node_of[device])
        room.setdefault(kind, {}).setdefault(node, []).append(device)
    taken: list[int] = []
    order = (-gang).argsort(kind="stable")
    for kind, size in zip(wanted[order].tolist(), gang[order].tolist(), strict=True):
        nodes = room[kind]
        left = size
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
    return order, np.array(taken, dtype=np.int64)
