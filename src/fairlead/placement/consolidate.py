"""Placement that keeps jobs where they are and consolidates gangs (Gavel §5)."""

from heapq import heappop, heappush
from itertools import accumulate

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.snapshot import Snapshot


def move(snap: Snapshot, wanted: IntArray) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the jobs to start so that rows hold what they want.

    ``wanted`` is rows → accelerator, -1 for none. A job that already holds devices of the
    wanted accelerator keeps them.
    """
    changed, running = wanted != snap.on, snap.on != -1
    stopping = (changed & running).nonzero()[0]
    starting = (changed & (wanted >= 0)).nonzero()[0]
    if not len(starting):
        return snap.lease[stopping], NO_PLACEMENTS
    # Row -1 is nobody; who only waits for its devices is placed anew.
    stays = np.zeros(len(wanted) + 1, dtype=bool)
    np.greater(running, changed, out=stays[:-1])
    kept = stays[snap.holds]
    free: BoolArray = ~(kept[0] if len(kept) == 1 else np.logical_or.reduce(kept, axis=0))
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
    whole = np.zeros(len(rows), dtype=np.int64)  # no copies
    if cluster.has_one_node_per_accelerator and snap.profiles.single:
        order, device = _place_on_any_device(cluster, free, wanted, None)
        start = np.arange(len(rows) + 1)
        return Placements(snap.job[rows[order]], whole, start, device)
    gang = snap.needs(rows, wanted)
    arrange = (
        _place_on_any_device if cluster.has_one_node_per_accelerator else _place_on_tightest_nodes
    )
    order, device = arrange(cluster, free, wanted, gang)
    start = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(gang[order], out=start[1:])
    return Placements(snap.job[rows[order]], whole, start, device)


def _place_on_any_device(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray | None
) -> tuple[IntArray, IntArray]:
    """Place jobs where every device of an accelerator is as good as any other.

    ``gang`` may be left out where all of them need one device.
    """
    by_kind = cluster.devices_by_accelerator
    open_devices = by_kind[free[by_kind]]
    order = wanted.argsort(kind="stable")
    kind = wanted[order] if gang is None else wanted[order].repeat(gang[order])
    if len(kind) == len(open_devices):
        return order, open_devices
    each = np.arange(len(cluster.accelerators))
    skip = cluster.accelerator_of[open_devices].searchsorted(each) - kind.searchsorted(each)
    return order, open_devices[np.arange(len(kind)) + skip[kind]]


def _place_on_tightest_nodes(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    rooms: dict[int, _FreeNodes] = {}
    taken: list[int] = []
    order = (-gang).argsort(kind="stable")
    for kind, size in zip(wanted[order].tolist(), gang[order].tolist(), strict=True):
        if kind not in rooms:
            rooms[kind] = _FreeNodes(cluster, free, kind)
        taken += rooms[kind].take(size)
    return order, np.array(taken, dtype=np.int64)


class _FreeNodes:
    """The free devices of one accelerator: nodes by how many they have, each once."""

    def __init__(self, cluster: Cluster, free: BoolArray, kind: int) -> None:
        devices = (free & (cluster.accelerator_of == kind)).nonzero()[0]
        on_node = np.bincount(cluster.node_of[devices])  # devices are numbered through the nodes
        node = on_node.nonzero()[0].tolist()
        count = on_node[node].tolist()
        self._devices: list[int] = devices.tolist()
        self._start = dict(zip(node, accumulate(count, initial=0), strict=False))
        """node → the first of its devices that is still free"""
        self._with: list[list[int]] = [[] for _ in range(max(count, default=0) + 1)]
        """number of free devices → heap of the nodes with so many"""
        for number, room in zip(node, count, strict=True):
            self._with[room].append(number)

    def take(self, size: int) -> list[int]:
        """Return devices for a gang: of the node it fits most tightly, else of those with most."""
        taken: list[int] = []
        while len(taken) < size:
            left = size - len(taken)
            fits = range(left, len(self._with))
            room = next((n for n in fits if self._with[n]), None)
            if room is None:
                room = max(n for n in range(1, len(self._with)) if self._with[n])
            node = heappop(self._with[room])
            count, first = min(left, room), self._start[node]
            taken += self._devices[first : first + count]
            self._start[node] = first + count
            heappush(self._with[room - count], node)
        return taken
