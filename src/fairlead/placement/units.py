"""Placement of units: packed jobs share devices, and jobs stay in place where possible."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

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
    if snap.profiles.single and units:
        rows = np.array(list(zip_longest(*units, fillvalue=ABSENT)), dtype=np.int64).T
        moves = _plan_single_moves(snap, rows, np.array(wanted))
        if moves is not None:
            return moves
    held, on = held_devices(snap), snap.on.tolist()
    claims: list[tuple[int, int, tuple[int, ...]]] = []
    for u, (unit, accelerator) in enumerate(zip(units, wanted, strict=True)):
        here = [held[row] for row in unit if row in held and on[row] == accelerator]
        claims += [(-here.count(devices), u, devices) for devices in set(here)]
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


def _plan_single_moves(
    snap: Snapshot, units: IntArray, wanted: IntArray
) -> tuple[IntArray, Placements] | None:
    """Return the same where every job needs one device; None if a job holds several.

    ``units`` is units × width → rows of jobs.
    """
    device = np.full(len(snap.job) + 1, ABSENT, dtype=np.int64)  # the last one is nobody's
    lane, at = (snap.holds >= 0).nonzero()
    rows = snap.holds[lane, at]
    if len(rows) and np.bincount(rows).max() > 1:
        return None
    device[rows] = at
    device[:-1][snap.lease < 0] = ABSENT
    held = device[units]
    held[snap.on[units] != wanted[:, None]] = ABSENT
    place_of = _claimed_devices(snap, held)
    elsewhere = (place_of == ABSENT).nonzero()[0]
    if len(elsewhere):
        free = np.zeros(len(snap.cluster.node_of), dtype=bool)
        free[snap.usable] = True
        free[place_of[place_of >= 0]] = False
        placed = place_gangs(snap, free, units[elsewhere, 0], wanted[elsewhere])
        first = snap.job[units[elsewhere, 0]]
        by_job = first.argsort()
        place_of[elsewhere[by_job[first.searchsorted(placed.job, sorter=by_job)]]] = placed.device
    goal = np.full_like(device, ABSENT)
    goal[units] = place_of[:, None]
    goal[-1] = ABSENT
    stop = ((device[:-1] >= 0) & (goal[:-1] != device[:-1])).nonzero()[0]
    row = units[units != ABSENT]
    row = row[goal[row] != device[row]]
    if not len(row):
        return snap.lease[stop], NO_PLACEMENTS
    whole = np.zeros(len(row), dtype=np.int64)  # no copies
    start = Placements(snap.job[row], whole, np.arange(len(row) + 1), goal[row])
    return snap.lease[stop], start


def _claimed_devices(snap: Snapshot, held: IntArray) -> IntArray:
    """Return units → device that its jobs already hold, ABSENT for none.

    ``held`` is units × width → device that a job holds of the wanted accelerator.
    """
    place_of: IntArray = held.max(axis=1)
    one = ((held == ABSENT) | (held == place_of[:, None])).all(axis=1)
    usable = np.zeros(len(snap.cluster.node_of) + 1, dtype=bool)  # the last one is no device
    usable[snap.usable] = True
    # Nearly every unit claims one device that no other claims: these are settled at once.
    claimed = np.concatenate([place_of[one], held[~one].ravel()])
    units = np.bincount(claimed[claimed >= 0], minlength=len(usable))
    rest = (~one | (units[place_of] > 1) & (place_of >= 0)).nonzero()[0].tolist()
    place_of[~usable[place_of]] = ABSENT
    place_of[rest] = ABSENT
    claims = Counter((u, device) for u in rest for device in held[u].tolist() if device >= 0)
    rivals = Counter(device for _, device in claims)
    order = sorted((-much, rivals[device], u, device) for (u, device), much in claims.items())
    for _, _, u, device in order:
        if place_of[u] == ABSENT and usable[device]:
            place_of[u] = device
            usable[device] = False
    return place_of


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
