"""Placement that keeps jobs where they are and consolidates gangs (Gavel §5)."""

from heapq import heappop, heappush
from itertools import accumulate

import numpy as np

from fairlead.model.arrays import NO_INTS, BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.snapshot import Snapshot


def plan_moves(snap: Snapshot, wanted: IntArray) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the jobs to start so that each row runs where wanted.

    ``wanted`` is rows → accelerator, -1 for none. A job that already holds devices of the
    wanted accelerator keeps them.
    """
    changed = wanted != snap.on
    if not changed.any():
        return NO_INTS, NO_PLACEMENTS
    running = snap.on != -1
    stopping = (changed & running).nonzero()[0]
    starting = (changed & (wanted >= 0)).nonzero()[0]
    if not len(starting):
        return snap.lease[stopping], NO_PLACEMENTS
    # Row -1 is no job; a job that still waits for its devices is placed again.
    stays = np.zeros(len(wanted) + 1, dtype=bool)
    np.greater(running, changed, out=stays[:-1])
    kept = stays[snap.holds]
    free: BoolArray = ~(kept[0] if len(kept) == 1 else np.logical_or.reduce(kept, axis=0))
    if len(snap.usable) < len(free):
        up = np.zeros(len(free), dtype=bool)
        up[snap.usable] = True
        free &= up
    return snap.lease[stopping], place_gangs(snap, free, starting, wanted[starting])


def place_gangs(snap: Snapshot, free: BoolArray, rows: IntArray, wanted: IntArray) -> Placements:
    """Return free devices of the wanted accelerators for these jobs; there must be enough.

    Larger gangs choose first. Each takes the node that it fits most tightly, or else the nodes
    with most free devices.
    """
    cluster = snap.cluster
    whole = np.zeros(len(rows), dtype=np.int64)  # no copies
    if cluster.has_one_node_per_accelerator and snap.profiles.single:
        order, device = _place_on_any_device(cluster, free, wanted, None)
        start = np.arange(len(rows) + 1)
        return Placements(snap.job[rows[order]], whole, start, device)
    gang = snap.gang_sizes(rows, wanted)
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
    """Place jobs where all devices of an accelerator are equally good.

    ``gang`` is None if every job needs one device.
    """
    by_accelerator = cluster.devices_by_accelerator
    open_devices = by_accelerator[free[by_accelerator]]
    order = wanted.argsort(kind="stable")
    of_device = wanted[order] if gang is None else wanted[order].repeat(gang[order])
    if len(of_device) == len(open_devices):
        return order, open_devices
    each = np.arange(len(cluster.accelerators))
    skip = cluster.accelerator_of[open_devices].searchsorted(each) - of_device.searchsorted(each)
    return order, open_devices[np.arange(len(of_device)) + skip[of_device]]


def _place_on_tightest_nodes(
    cluster: Cluster, free: BoolArray, wanted: IntArray, gang: IntArray
) -> tuple[IntArray, IntArray]:
    free_nodes: dict[int, _FreeNodes] = {}
    taken: list[int] = []
    order = (-gang).argsort(kind="stable")
    for accelerator, size in zip(wanted[order].tolist(), gang[order].tolist(), strict=True):
        if accelerator not in free_nodes:
            free_nodes[accelerator] = _FreeNodes(cluster, free, accelerator)
        taken += free_nodes[accelerator].take(size)
    return order, np.array(taken, dtype=np.int64)


class _FreeNodes:
    """The free devices of one accelerator, with nodes grouped by their number of them."""

    def __init__(self, cluster: Cluster, free: BoolArray, accelerator: int) -> None:
        devices = (free & (cluster.accelerator_of == accelerator)).nonzero()[0]
        on_node = np.bincount(cluster.node_of[devices])  # devices are numbered through the nodes
        node = on_node.nonzero()[0].tolist()
        count = on_node[node].tolist()
        self._devices: list[int] = devices.tolist()
        self._start = dict(zip(node, accumulate(count, initial=0), strict=False))
        """node → its first free device"""
        self._with: list[list[int]] = [[] for _ in range(max(count, default=0) + 1)]
        """number of free devices → heap of the nodes with that number"""
        for number, room in zip(node, count, strict=True):
            self._with[room].append(number)

    def take(self, size: int) -> list[int]:
        """Return devices for a gang: of the node it fits most tightly, else of the emptiest."""
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
