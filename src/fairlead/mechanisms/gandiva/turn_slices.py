"""Slices in which units only take turns: nobody is placed, packed or moved to another server."""

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import (
    PASS,
    UTILIZATION,
    Thresholds,
    UnitMembers,
    measured_facts,
)
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.mechanisms.gandiva.time_slices import devices_for
from fairlead.model.arrays import FloatArray
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot


def turn_slice(
    members: UnitMembers, memory: GandivaMemory, limits: Thresholds, until: float
) -> tuple[Plan, GandivaMemory] | None:
    """Return the plan of a slice in overload whose units only take turns; None if more is to do.

    It equals the one that Gandiva's own steps would give, at a fraction of their time.
    """
    snap, servers = members.snap, members.servers
    if (
        not (memory.load > servers.size).any()
        or members.packed.any()
        or (members.need > servers.size[members.home]).any()
        or not _have_one_rank(snap)
    ):
        return None
    facts, fresh = measured_facts(members, memory)
    packable = limits.slow is not None and not np.isnan(facts[:, UTILIZATION]).all()
    if packable or members.has_troubled_job(facts, fresh, limits):
        return None
    chosen, waits = _select(members, facts)
    held = _held_rows(snap)
    if any(snap.lease[row] < 0 for row in held):
        return None
    kept, start = _on_devices(members, servers, chosen, held)
    stop = [int(snap.lease[row]) for row in held if row not in kept]
    members.share_passes(facts, waits)
    members.note_weights(facts)
    plan = Plan(np.array(stop, dtype=np.int64), Placements.of(start), until, until)
    return plan, members.memory_after(memory, facts, fresh)


def _have_one_rank(snap: Snapshot) -> bool:
    """Return whether no job precedes another one."""
    same = len({tenant.priority for tenant in snap.tenants}) <= 1
    return same and bool((snap.precedence == snap.precedence[0]).all())


def _select(members: UnitMembers, facts: FloatArray) -> tuple[list[int], set[int]]:
    """Return the units that run, in their turn, and the servers on which others wait."""
    free = members.servers.size.tolist()
    home, need = members.home.tolist(), members.need.tolist()
    turn = [round(passed, 6) for passed in facts[members.row, PASS].tolist()]
    job = members.snap.job[members.row].tolist()
    chosen: list[int] = []
    waits: set[int] = set()
    for _, _, unit in sorted(zip(turn, job, range(len(turn)), strict=True)):
        server = home[unit]
        if free[server] >= need[unit]:
            free[server] -= need[unit]
            chosen.append(unit)
        else:
            waits.add(server)
    return chosen, waits


def _held_rows(snap: Snapshot) -> dict[int, list[int]]:
    """Return row → devices that it holds, in the order of leases and devices."""
    lane, device = (snap.holds >= 0).nonzero()
    held: dict[int, list[int]] = {}
    for row, here in zip(snap.holds[lane, device].tolist(), device.tolist(), strict=True):
        held.setdefault(row, []).append(here)
    return held


def _on_devices(
    members: UnitMembers, servers: Servers, chosen: list[int], held: dict[int, list[int]]
) -> tuple[set[int], list[Placement]]:
    """Return the rows that keep their devices, and the jobs that start."""
    row, job = members.row.tolist(), members.snap.job.tolist()
    home, need = members.home.tolist(), members.need.tolist()
    server_of = servers.server_of
    kept: set[int] = set()
    used: set[int] = set()
    moved: list[int] = []
    for unit in chosen:
        devices = held.get(row[unit], ())
        if (
            len(devices) == need[unit]
            and all(server_of[device] == home[unit] for device in devices)
            and used.isdisjoint(devices)
        ):
            kept.add(row[unit])
            used.update(devices)
        else:
            moved.append(unit)
    moved.sort(key=lambda unit: -need[unit])
    wanted = [({home[unit]: need[unit]}, set(held.get(row[unit], ()))) for unit in moved]
    assigned = devices_for(servers, wanted, used)
    return kept, [
        Placement(job[row[unit]], 0, devices)
        for unit, devices in zip(moved, assigned, strict=True)
    ]
