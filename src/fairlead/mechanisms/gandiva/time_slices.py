"""Gandiva's time slices: whose turn it is on each server, and on which of its devices."""

from collections.abc import Iterable, Mapping, Sequence, Set

from fairlead.mechanisms.gandiva.memory import GandivaUnit, Home
from fairlead.mechanisms.gandiva.servers import Servers, has_room
from fairlead.model.lease import Placement

Held = dict[int, tuple[int, ...]]
"""job → devices on which it runs, ascending"""


def select_units(servers: Servers, units: Sequence[GandivaUnit]) -> list[GandivaUnit]:
    """Return the units that run in this slice: weighted round-robin on every server (§4.2).

    Higher ranks come first and so are never preempted for lower ones; within a rank the unit that
    has had least for its weight comes first. A gang across servers runs when all of them have
    room for it; since the unit that has had least is served first, its turn always comes.
    """
    free = servers.size.tolist()
    order = sorted(units, key=_turn)
    chosen = []
    waits: set[int] = set()
    for unit in order:
        if has_room(free, unit.home.items()):
            for server, count in unit.home.items():
                free[server] -= count
            chosen.append(unit)
        else:
            waits.update(unit.home)
    for server, there in enumerate(servers.units):
        if there and server not in waits:
            # Nobody had to wait, so nobody is owed anything for it later.
            latest = max([unit.pass_s for unit in there.values()])
            for unit in there.values():
                for task in unit.tasks:
                    task.pass_s = latest
    return chosen


def _turn(unit: GandivaUnit) -> tuple[float, float, float, int]:
    """Return a key that sorts units by their turn on a server."""
    task = unit.tasks[0]
    if len(unit.tasks) == 1:
        tenant, own = task.rank
        return -tenant, -own, round(task.pass_s, 6), task.job
    tenant, own = unit.rank
    return -tenant, -own, round(unit.pass_s, 6), task.job


def on_devices(
    servers: Servers, chosen: Iterable[GandivaUnit], held: Held
) -> tuple[dict[int, tuple[int, ...]], list[Placement]]:
    """Return job → devices of jobs that continue, and the jobs that start on devices.

    Units stay within their homes, and running units keep their devices; of units that were packed
    until now, the first in turn keeps them. Larger gangs choose first among the rest, adjacent
    devices if possible, since these are likely to share a switch.
    """
    continuing: dict[int, tuple[int, ...]] = {}
    starting: list[Placement] = []
    used: set[int] = set()
    moved: list[GandivaUnit] = []
    for unit in chosen:
        kept = _devices_kept(servers, unit, held)
        if kept is None or not used.isdisjoint(kept):
            moved.append(unit)
            continue
        used.update(kept)
        for task in unit.tasks:
            if held.get(task.job) == kept:
                continuing[task.job] = kept
            else:
                starting.append(Placement(task.job, 0, kept))
    moved.sort(key=lambda u: -sum(devices_per_server(u).values()))
    wanted = [
        (devices_per_server(unit), {d for task in unit.tasks for d in held.get(task.job, ())})
        for unit in moved
    ]
    for unit, on in zip(moved, devices_for(servers, wanted, used), strict=True):
        starting += [Placement(task.job, 0, on) for task in unit.tasks]
    return continuing, starting


def devices_for(
    servers: Servers, wanted: Sequence[tuple[Home, set[int]]], used: Set[int]
) -> list[tuple[int, ...]]:
    """Return devices that are not in use for each home, with those that its unit held before."""
    free = servers.free_devices({server for home, _ in wanted for server in home}, used)
    assigned = []
    for home, before in wanted:
        devices: list[int] = []
        for server, count in sorted(home.items()):
            devices += _adjacent(free[server], count, before)
        for device in devices:
            free[servers.server_of[device]].discard(device)
        assigned.append(tuple(devices))
    return assigned


def devices_per_server(unit: GandivaUnit) -> dict[int, int]:
    """Return server → devices for this slice: a unit's home, and what it has grown by."""
    if len(unit.home) == 1 and unit.tasks[0].elastic:
        return dict.fromkeys(unit.home, int(unit.tasks[0].size))
    return unit.home


def held_devices(running: Mapping[int, tuple[int, tuple[int, ...]]]) -> Held:
    """Return job → devices of all running jobs, given lease → job and devices."""
    held: Held = {}
    for job, devices in running.values():
        held[job] = tuple(sorted((*held[job], *devices))) if job in held else devices
    return held


def _devices_kept(servers: Servers, unit: GandivaUnit, held: Held) -> tuple[int, ...] | None:
    """Return the devices on which a job of the unit runs already, where they are what it wants."""
    for task in unit.tasks:
        devices = held.get(task.job)
        if devices is None:
            continue
        on = [servers.server_of[device] for device in devices]
        held_there = {on[0]: 1} if len(on) == 1 else {server: on.count(server) for server in on}
        if held_there == devices_per_server(unit):
            return devices
    return None


def _adjacent(free: set[int], count: int, before: set[int]) -> list[int]:
    """Return free devices close to each other, rather those that the unit has held before."""
    if count == 1:
        return [min(free & before or free)]
    order = sorted(free)
    windows = [order[i : i + count] for i in range(len(order) - count + 1)]

    def cost(window: list[int]) -> tuple[int, int, int, int]:
        apart = window[-1] - window[0]
        return -len(before & set(window)), apart, window[0] % max(count, 1), window[0]

    return min(windows, key=cost)


def record_unit_weight(units: Iterable[GandivaUnit]) -> None:
    """Note for every job the weight of the unit in which its next time counts."""
    for unit in units:
        if len(unit.tasks) == 1:
            unit.tasks[0].shared_weight = unit.tasks[0].weight
            continue
        weight = unit.weight
        for task in unit.tasks:
            task.shared_weight = weight
