"""Slices in which units only take turns: nobody is placed, packed or moved to another server."""

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._tickets.device_turns import DeviceTurns
from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.mechanisms._tickets.turn_run import DEVICE, LAST_AT, TurnRun
from fairlead.mechanisms.base import Measured, Turn
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import (
    BEST,
    CURRENT,
    PASS,
    UTILIZATION,
    Thresholds,
    UnitMembers,
    has_disturbed_job,
    measured_facts,
    record_rows,
    unchanged_units,
)
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.mechanisms.gandiva.time_slices import devices_for
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot

_TIE = 6
"""decimals to which equal passes agree"""


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
        or not have_one_rank(snap)
    ):
        return None
    facts, fresh = measured_facts(members, memory)
    packable = limits.slow is not None and not np.isnan(facts[:, UTILIZATION]).all()
    if packable or members.has_troubled_job(facts, fresh, limits):
        return None
    holders = snap.holds[snap.holds >= 0]
    if (snap.lease[holders] < 0).any():
        return None
    order = turn_order(members, facts)
    if (members.need == 1).all() and len(snap.holds) == 1 and _are_distinct(holders):
        stop, start, waits = single_turns(members, order)
    else:
        chosen, waits = _select(members, order)
        held = _held_rows(snap)
        kept, placed = _on_devices(members, servers, chosen, held)
        stop = snap.lease[[row for row in held if row not in kept]]
        start = Placements.of(placed)
    members.share_passes(facts, waits)
    members.note_weights(facts)
    return Plan(stop, start, until, until), members.memory_after(memory, facts, fresh)


class SliceTurns:
    """Slices in overload in which units of one device take turns, and nothing else changes."""

    def __init__(
        self, members: UnitMembers, memory: GandivaMemory, limits: Thresholds, turns: DeviceTurns
    ) -> None:
        self.memory, self._limits, self._turns = memory, limits, turns
        self._unit_of, self._accelerator = members.unit_of, members.accelerator
        of_row = members.home[members.unit_of]
        settled = (memory.load <= members.servers.size)[of_row]
        self._unit: IntArray = np.stack([self._unit_of, self._accelerator, settled])
        """unit, accelerator and whether nobody waits on its server, × rows"""
        self._settled: IntArray = settled.nonzero()[0]
        """rows of servers on which nobody waits, by server"""
        self._settled = self._settled[of_row[self._settled].argsort(kind="stable")]
        self._first: IntArray = np.flatnonzero(np.diff(of_row[self._settled], prepend=-1))
        self._count: IntArray = np.diff(self._first, append=len(self._settled))

    @classmethod
    def of(
        cls, snap: Snapshot, memory: GandivaMemory, limits: Thresholds, device: IntArray
    ) -> "SliceTurns | None":
        """Return the slices after a plan; None if there is more to do.

        ``device`` is rows → the device held since, -1 for none.
        """
        servers = Servers(snap)
        if len(memory.load) != len(servers.size) or not (memory.load > servers.size).any():
            return None
        members = unchanged_units(snap, memory, servers)
        if (
            members is None
            or members.packed.any()
            or (members.need != 1).any()
            or (servers.size[members.home] < 1).any()
            or not have_one_rank(snap)
            or (limits.slow is not None and not np.isnan(memory.facts[:, UTILIZATION]).all())
        ):
            return None
        home = members.home[members.unit_of]
        turns = DeviceTurns(home, device, snap.usable, servers.of_device)
        return cls(members, memory, limits, turns) if turns.fit() else None

    def next_turn(
        self, at: float, received_s: FloatArray, measured: Measured | None
    ) -> Turn | None:
        """Return the units whose turn it is; None if one could be packed or moved."""
        assert measured is not None
        memory, limits = self.memory, self._limits
        facts = memory.facts_of(memory.job, received_s.sum(axis=1))
        known = record_rows(facts, measured, self._accelerator)
        packable = limits.slow is not None and not np.isnan(measured.utilization).all()
        if packable or has_disturbed_job(facts, at, limits):
            return None
        moves = self._turns.take(pass_ranks(facts[:, PASS], _TIE))
        if len(self._settled):
            latest = np.maximum.reduceat(facts[self._settled, PASS], self._first)
            facts[self._settled, PASS] = latest.repeat(self._count)
        trials = memory.trials.copy()
        trials[self._unit_of[known], 0] = facts[known, CURRENT] / facts[known, BEST]
        self.memory = _after_slices(memory, at, facts, trials)
        return Turn(*moves, self.memory)

    def take_rounds(self, run: TurnRun) -> int:
        """Take slices until something else happens and return how many, as ``next_turn`` does."""
        if compiled is None:
            return 0
        facts, trials = self.memory.facts.copy(), self.memory.trials.copy()
        limits = self._limits
        thresholds = np.array([limits.slow, limits.disturbed, limits.settle_s], dtype=np.float64)
        tables = facts, trials, self._unit, thresholds
        count = compiled.slice_rounds(*run.arguments(self._turns), *tables)
        if count:
            self._turns.continue_from(run.ints[DEVICE].copy())
            at = float(run.clock[LAST_AT])
            self.memory = _after_slices(self.memory, at, facts, trials)
        return count


def _after_slices(
    memory: GandivaMemory, at: float, facts: FloatArray, trials: FloatArray
) -> GandivaMemory:
    return GandivaMemory(
        *(at, memory.changes, memory.job, facts, memory.units, memory.homes, trials),
        *(memory.failed, memory.load, memory.changed_at),
    )


def have_one_rank(snap: Snapshot) -> bool:
    """Return whether no job precedes another one."""
    same = len({tenant.priority for tenant in snap.tenants}) <= 1
    return same and bool((snap.precedence == snap.precedence[0]).all())


def turn_order(members: UnitMembers, facts: FloatArray) -> IntArray:
    """Return the units in their turn."""
    turn = pass_ranks(facts[members.row, PASS], _TIE)
    order: IntArray = np.lexsort((members.snap.job[members.row], turn))
    return order


def single_turns(members: UnitMembers, order: IntArray) -> tuple[IntArray, Placements, set[int]]:
    """Return the leases that end, the jobs that start, and the servers on which others wait.

    Every unit needs one device, none holds more, and no two hold the same one.
    """
    snap, servers = members.snap, members.servers
    home, size = members.home[order], servers.size
    chosen = order[_place_within(home, len(size)) < size[home]]
    device = np.full(len(snap.job), -1)
    busy = (snap.holds[0] >= 0).nonzero()[0]
    holder = snap.holds[0][busy]
    device[holder] = busy
    row = members.row[chosen]
    stays = (device[row] >= 0) & (servers.of_device[device[row]] == members.home[chosen])
    idle = np.zeros(len(servers.of_device), dtype=bool)
    idle[servers.usable] = True
    idle[device[row[stays]]] = False
    kept = np.zeros(len(snap.job), dtype=bool)
    kept[row[stays]] = True
    coming = chosen[~stays]
    free = idle.nonzero()[0]
    free = free[np.argsort(servers.of_device[free], kind="stable")]
    first = np.searchsorted(servers.of_device[free], members.home[coming])
    placed = free[first + _place_within(members.home[coming], len(size))]
    job = snap.job[members.row[coming]]
    start = Placements(job, np.zeros_like(job), np.arange(len(job) + 1), placed)
    waits = set((np.bincount(home, minlength=len(size)) > size).nonzero()[0].tolist())
    return snap.lease[holder[~kept[holder]]], start, waits


def _are_distinct(rows: IntArray) -> bool:
    return int(np.bincount(rows).max(initial=0)) <= 1


def _place_within(group: IntArray, groups: int) -> IntArray:
    """Return the number of earlier entries of the same group."""
    count = np.bincount(group, minlength=groups)
    place = np.empty(len(group), dtype=np.int64)
    place[np.argsort(group, kind="stable")] = np.arange(len(group)) - (
        (count.cumsum() - count).repeat(count)
    )
    return place


def _select(members: UnitMembers, order: IntArray) -> tuple[list[int], set[int]]:
    """Return the units that run, in their turn, and the servers on which others wait."""
    free = members.servers.size.tolist()
    home, need = members.home.tolist(), members.need.tolist()
    chosen: list[int] = []
    waits: set[int] = set()
    for unit in order.tolist():
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
