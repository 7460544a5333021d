"""On which devices: gangs on one node, larger ones first, others where they are (OEF §4.3)."""

from collections.abc import Mapping

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placement, Placements
from fairlead.model.snapshot import Snapshot
from fairlead.placement import held_devices, place_gangs, plan_moves

Spans = Mapping[int, Mapping[int, int]]
"""rows → accelerator → devices of it, for gangs that span several"""


def place_round(
    snap: Snapshot, wanted: IntArray, spans: Spans
) -> tuple[IntArray, Placements, dict[int, tuple[int, ...]]]:
    """Return the leases to stop, the jobs to start, and rows → devices of all that run then.

    ``wanted`` is rows → accelerator, -1 for none. A job that holds devices of the wanted
    accelerator keeps them, unless a larger gang can sit on one node only if it moves.
    """
    held = held_devices(snap)
    stays = ((wanted >= 0) & (wanted == snap.on)).tolist()
    goal = {row: devices for row, devices in held.items() if stays[row]}
    free = np.zeros(len(snap.cluster.node_of), dtype=bool)
    free[snap.usable] = True
    free[[device for devices in goal.values() for device in devices]] = False
    starting = [row for row in (wanted >= 0).nonzero()[0].tolist() if row not in goal]
    if not snap.cluster.has_one_node_per_accelerator:
        starting = _gangs_on_nodes(snap, wanted, starting, goal, free)
    rows = np.array(starting, dtype=np.int64)
    if len(rows):
        row_of = dict(zip(snap.job[rows].tolist(), starting, strict=True))
        for job, _, devices, _ in place_gangs(snap, free, rows, wanted[rows]):
            goal[row_of[job]] = devices
            free[list(devices)] = False
    _place_spans(snap, spans, held, goal, free)
    stop = sorted(row for row, devices in held.items() if goal.get(row) != devices)
    start = [
        Placement(int(snap.job[row]), 0, devices)
        for row, devices in goal.items()
        if held.get(row) != devices
    ]
    return snap.lease[stop], Placements.of(start) if start else NO_PLACEMENTS, goal


def place_single(snap: Snapshot, wanted: IntArray) -> tuple[IntArray, Placements, IntArray]:
    """Return the same where every job needs one device: leases, jobs, rows of all that run."""
    stop, start = plan_moves(snap, wanted)
    stays = (wanted >= 0) & (wanted == snap.on)
    holders = snap.holds[snap.holds >= 0]
    starting = np.searchsorted(snap.job, start.job)
    return stop, start, np.concatenate([holders[stays[holders]], starting])


def _gangs_on_nodes(
    snap: Snapshot,
    wanted: IntArray,
    starting: list[int],
    goal: dict[int, tuple[int, ...]],
    free: BoolArray,
) -> list[int]:
    """Give every gang that starts a node of its accelerator; return the rows without a place.

    Smaller ones that must make way for it join those. ``goal`` and ``free`` are kept up to date.
    """
    gang, accelerator_of, node_of = snap.gang, snap.cluster.accelerator_of, snap.cluster.node_of
    nodes: dict[tuple[int, int], list[int]] = {}
    for device in snap.usable.tolist():
        nodes.setdefault((int(accelerator_of[device]), int(node_of[device])), []).append(device)
    holder = {device: row for row, devices in goal.items() for device in devices}
    queue = sorted(starting, key=lambda row: (-int(gang[row]), row))
    rest: list[int] = []
    while queue and gang[queue[0]] > 1:
        row = queue.pop(0)
        size, accelerator = int(gang[row]), int(wanted[row])
        devices = _node_for(
            size, [nodes[at] for at in nodes if at[0] == accelerator], holder, gang, free
        )
        if not devices:
            rest.append(row)
            continue
        for moved in {holder[device] for device in devices if device in holder}:
            free[list(goal[moved])] = True
            for device in goal.pop(moved):
                del holder[device]
            queue.append(moved)
        queue.sort(key=lambda r: (-int(gang[r]), r))
        goal[row] = tuple(sorted(devices))
        free[devices] = False
        holder.update(dict.fromkeys(devices, row))
    return rest + queue


def _node_for(
    size: int, nodes: list[list[int]], holder: dict[int, int], gang: IntArray, free: BoolArray
) -> list[int]:
    """Return devices of one node for a gang, nothing where no node can have it.

    Best is a node with room for just this gang, then the one on which fewest devices have to be
    vacated by smaller gangs.
    """
    best: tuple[int, int] | None = None
    chosen: list[int] = []
    for devices in nodes:
        if len(devices) < size:
            continue
        open_ = [d for d in devices if free[d]]
        cost = (max(size - len(open_), 0), len(open_))
        if best is not None and cost >= best:
            continue
        weak = [d for d in devices if d in holder and gang[holder[d]] < size]
        if len(open_) + len(weak) >= size:
            weak.sort(key=lambda d: (int(gang[holder[d]]), holder[d]))
            best, chosen = cost, (open_ + weak)[:size]
    return chosen


def _place_spans(
    snap: Snapshot,
    spans: Spans,
    held: Mapping[int, tuple[int, ...]],
    goal: dict[int, tuple[int, ...]],
    free: BoolArray,
) -> None:
    """Place gangs that span accelerators, where they are if they can stay, else on few nodes."""
    accelerator_of, node_of = snap.cluster.accelerator_of, snap.cluster.node_of
    for row, counts in spans.items():
        now = held.get(row, ())
        there = np.bincount(accelerator_of[list(now)], minlength=len(snap.capacity)) if now else ()
        if now and free[list(now)].all() and all(there[k] == n for k, n in counts.items()):
            goal[row] = now
        else:
            devices: list[int] = []
            for accelerator, count in counts.items():
                open_ = (free & (accelerator_of == accelerator)).nonzero()[0]
                room = np.bincount(node_of[open_], minlength=len(snap.cluster.nodes))
                order = np.lexsort((open_, -room[node_of[open_]]))
                devices += open_[order[:count]].tolist()
            goal[row] = tuple(sorted(devices))
        free[list(goal[row])] = False
