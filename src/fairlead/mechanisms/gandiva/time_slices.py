"""Gandiva's time slices: whose turn it is on each server, and on which of its devices."""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaUnit
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.lease import Placement
from fairlead.model.snapshot import Snapshot


def select_units(servers: Servers, units: Sequence[GandivaUnit]) -> list[GandivaUnit]:
    """Return the units that run in this slice: weighted round-robin on every server (§4.2).

    Higher ranks come first and so are never preempted for lower ones; within a rank the unit that
    has had least for its weight comes first. A gang across servers runs when all of them have
    room for it; since the unit that has had least is served first, its turn always comes.
    """
    free = servers.size.tolist()
    order = sorted(units, key=lambda u: (tuple(-r for r in u.rank), round(u.pass_s, 6), u.job))
    chosen = []
    waits: set[int] = set()
    for unit in order:
        if all(free[server] >= count for server, count in unit.home.items()):
            for server, count in unit.home.items():
                free[server] -= count
            chosen.append(unit)
        else:
            waits.update(unit.home)
    for server, there in enumerate(servers.units):
        if there and server not in waits:
            # Nobody had to wait, so nobody is owed anything for it later.
            latest = max(unit.pass_s for unit in there.values())
            for unit in there.values():
                for task in unit.tasks:
                    task.pass_s = latest
    return chosen


def on_devices(
    servers: Servers, chosen: Iterable[GandivaUnit], held: dict[int, tuple[int, ...]]
) -> list[Placement]:
    """Return the units' jobs on devices of their homes; running units keep their devices.

    Larger gangs choose first among the rest, adjacent devices if possible, since these are
    likely to share a switch.
    """
    free = [set(devices.tolist()) for devices in servers.by_devices]
    placed: list[Placement] = []
    starts: list[GandivaUnit] = []
    for unit in chosen:
        kept = _devices_kept(servers, unit, held)
        if kept is None:
            starts.append(unit)
            continue
        for device in kept:
            free[servers.of_device[device]].discard(device)
        placed += _placements(unit, kept)
    for unit in sorted(starts, key=lambda u: -sum(devices_per_server(u).values())):
        before = {device for task in unit.tasks for device in held.get(task.job, ())}
        devices: list[int] = []
        for server, count in sorted(devices_per_server(unit).items()):
            devices += _adjacent(free[server], count, before)
        for device in devices:
            free[servers.of_device[device]].discard(device)
        placed += _placements(unit, devices)
    return placed


def devices_per_server(unit: GandivaUnit) -> dict[int, int]:
    """Return server → devices for this slice: a unit's home, and what it has grown by."""
    if len(unit.home) == 1 and unit.tasks[0].elastic:
        return dict.fromkeys(unit.home, int(unit.tasks[0].size))
    return unit.home


def held_devices(snap: Snapshot) -> dict[int, tuple[int, ...]]:
    """Return job → devices of all running jobs that are not being preempted."""
    lane, device = (snap.holds >= 0).nonzero()
    rows = snap.holds[lane, device]
    runs = snap.lease[rows] >= 0
    held: dict[int, list[int]] = {}
    for job, here in zip(snap.job[rows[runs]].tolist(), device[runs].tolist(), strict=True):
        held.setdefault(job, []).append(here)
    return {job: tuple(sorted(devices)) for job, devices in held.items()}


def _devices_kept(
    servers: Servers, unit: GandivaUnit, held: dict[int, tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the devices on which a job of the unit runs already, where they are what it wants."""
    want = devices_per_server(unit)
    for task in unit.tasks:
        devices_held = held.get(task.job)
        if devices_held is None:
            continue
        on, counts = np.unique(servers.of_device[list(devices_held)], return_counts=True)
        if dict(zip(on.tolist(), counts.tolist(), strict=True)) == want:
            return devices_held
    return None


def _adjacent(free: set[int], count: int, before: set[int]) -> list[int]:
    """Return free devices close to each other, rather those that the unit has held before."""
    order = sorted(free)
    windows = [order[i : i + count] for i in range(len(order) - count + 1)]

    def cost(window: list[int]) -> tuple[int, int, int, int]:
        apart = window[-1] - window[0]
        return -len(before & set(window)), apart, window[0] % max(count, 1), window[0]

    return min(windows, key=cost)


def _placements(unit: GandivaUnit, devices: Iterable[int]) -> list[Placement]:
    on = tuple(devices)
    return [Placement(task.job, 0, on) for task in unit.tasks]


def record_unit_weight(units: Iterable[GandivaUnit]) -> None:
    """Note for every job the weight of the unit in which its next time counts."""
    for unit in units:
        weight = unit.weight
        for task in unit.tasks:
            task.shared_weight = weight
