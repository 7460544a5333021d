"""Placement of units: packed jobs share devices, and jobs stay in place where possible."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placement, Placements
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import Snapshot
from fairlead.placement.consolidate import place_gangs
from fairlead.placement.transition import held_devices


def plan_unit_moves(
    snap: Snapshot, units: Sequence[Sequence[int]], wanted: Sequence[int]
) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the jobs to start so that each unit runs where wanted.

    A unit is rows of jobs (ABSENT is skipped), ``wanted`` its accelerator; no job is in two
    units. Devices of the wanted accelerator that jobs of a unit already hold go to the unit with
    most jobs there, first those that fewest units claim; a unit's other jobs join it. Other
    units are placed like jobs alone.
    """
    held, on = held_devices(snap), snap.on.tolist()
    claims = [
        (-sum(held.get(row) == devices for row in unit), u, devices)
        for u, unit in enumerate(units)
        for devices in {held[row] for row in unit if row in held and on[row] == wanted[u]}
    ]
    place_of: dict[int, tuple[int, ...]] = {}
    open_ = set(snap.usable.tolist())
    rivals = Counter(devices for _, _, devices in claims)
    for _, _, u, devices in sorted((much, rivals[at], u, at) for much, u, at in claims):
        if u not in place_of and open_.issuperset(devices):
            place_of[u] = devices
            open_.difference_update(devices)
    elsewhere = [u for u in range(len(units)) if u not in place_of]
    if elsewhere:
        free = np.zeros(len(snap.cluster.node_of), dtype=bool)
        free[list(open_)] = True
        first = np.array([units[u][0] for u in elsewhere], dtype=np.int64)
        placed = place_gangs(snap, free, first, np.array([wanted[u] for u in elsewhere]))
        unit_of = {int(snap.job[units[u][0]]): u for u in elsewhere}
        place_of.update({unit_of[p.job]: p.devices for p in placed})
    return _changes(
        snap,
        held,
        {row: place_of[u] for u, unit in enumerate(units) for row in unit if row != ABSENT},
    )


def _changes(
    snap: Snapshot, held: dict[int, tuple[int, ...]], goal: dict[int, tuple[int, ...]]
) -> tuple[IntArray, Placements]:
    """Return the leases that end and the placements that start from ``held`` to ``goal``."""
    stop = [row for row, devices in held.items() if goal.get(row) != devices]
    start = [
        Placement(int(snap.job[row]), 0, devices)
        for row, devices in goal.items()
        if held.get(row) != devices
    ]
    return snap.lease[sorted(stop)], Placements.of(start) if start else NO_PLACEMENTS
