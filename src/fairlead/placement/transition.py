"""Transitions to given placements, for mechanisms that choose devices themselves."""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placement, Placements
from fairlead.model.snapshot import Snapshot


def plan_transition(snap: Snapshot, wanted: Iterable[Placement]) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the placements to start so that exactly ``wanted`` runs.

    A lease continues if a wanted placement has its job and devices; every other lease ends, and
    every other placement starts.
    """
    missing = {(p.job, p.copy, _ascending(p.devices)): p for p in wanted}
    copies: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for job, copy, devices in missing:
        copies.setdefault((job, devices), []).append(copy)
    stop = []
    for lease, (job, devices) in running_leases(snap).items():
        same = copies.get((job, devices))
        if same:
            del missing[job, same.pop(0), devices]
        else:
            stop.append(lease)
    return np.array(stop, dtype=np.int64), Placements.of(list(missing.values()))


def running_leases(snap: Snapshot) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return lease → job and devices, of all leases that are not being preempted."""
    held: dict[int, tuple[int, list[int]]] = {}
    lane, device = (snap.holds >= 0).nonzero()
    rows = snap.holds[lane, device]
    leases = snap.lease[rows] if snap.holds_lease is None else snap.holds_lease[lane, device]
    columns = leases.tolist(), snap.job[rows].tolist(), device.tolist()
    for lease, job, here in zip(*columns, strict=True):
        if lease >= 0:
            held.setdefault(lease, (job, []))[1].append(here)
    return {lease: (job, _ascending(devices)) for lease, (job, devices) in held.items()}


def held_devices(snap: Snapshot) -> dict[int, tuple[int, ...]]:
    """Return rows → devices in ascending order, of jobs that are not being preempted."""
    lane, device = (snap.holds >= 0).nonzero()
    held: dict[int, list[int]] = {}
    for row, here in zip(snap.holds[lane, device].tolist(), device.tolist(), strict=True):
        held.setdefault(row, []).append(here)
    runs = (snap.lease >= 0).tolist()
    return {row: _ascending(devices) for row, devices in held.items() if runs[row]}


def _ascending(devices: Sequence[int]) -> tuple[int, ...]:
    return tuple(devices) if len(devices) == 1 else tuple(sorted(devices))
