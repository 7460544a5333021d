"""From what runs to what should run: for mechanisms that decide devices themselves."""

from collections.abc import Iterable

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placement, Placements
from fairlead.model.snapshot import Snapshot


def towards(snap: Snapshot, wanted: Iterable[Placement]) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the placements to start so that just ``wanted`` runs.

    A lease whose job and copy are to hold exactly the same devices goes on; every other lease
    ends, and every other placement starts.
    """
    missing = {(p.job, p.copy, tuple(sorted(p.devices))): p for p in wanted}
    stop = []
    for lease, (job, devices) in _running(snap).items():
        same = [key for key in missing if key[0] == job and key[2] == devices]
        if same:
            del missing[same[0]]
        else:
            stop.append(lease)
    return np.array(stop, dtype=np.int64), Placements.of(list(missing.values()))


def _running(snap: Snapshot) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return lease → job and devices, of all that runs and was not told to leave."""
    held: dict[int, tuple[int, list[int]]] = {}
    lane, device = (snap.holds >= 0).nonzero()
    for where in zip(lane.tolist(), device.tolist(), strict=True):
        row = int(snap.holds[where])
        lease = int(snap.lease[row] if snap.holds_lease is None else snap.holds_lease[where])
        if lease >= 0:
            held.setdefault(lease, (int(snap.job[row]), []))[1].append(where[1])
    return {lease: (job, tuple(sorted(devices))) for lease, (job, devices) in held.items()}


def held_devices(snap: Snapshot) -> dict[int, tuple[int, ...]]:
    """Return rows → devices in ascending order, of those that run and were not told to leave."""
    lane, device = (snap.holds >= 0).nonzero()
    found: dict[int, list[int]] = {}
    for row, here in zip(snap.holds[lane, device].tolist(), device.tolist(), strict=True):
        found.setdefault(row, []).append(here)
    runs = (snap.lease >= 0).tolist()
    return {row: tuple(sorted(devices)) for row, devices in found.items() if runs[row]}
