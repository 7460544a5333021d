"""Changes plans so that every tenant holds what it is guaranteed and can use."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from fairlead.mechanisms.guarantees.needs import Needs, by_turn, fitting_jobs, has_guarantees
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import place_gangs


def guaranteed_plan(snap: Snapshot, plan: Plan, *, may_stop: bool = True) -> Plan:
    """Return a plan in which tenants hold the devices that they are guaranteed and can use.

    In every round a tenant holds as many of its guaranteed devices as whole gangs of its jobs
    can use. For this, jobs of other tenants beyond their own guarantees lose devices: first jobs
    that would start in this round, then running ones if the mechanism stops any (``may_stop``).
    """
    if not has_guarantees(snap):
        return plan
    stopped = set(plan.stop.tolist())
    units = [*_running(snap, stopped), *_starting(snap, plan.start)]
    free = np.zeros(len(snap.cluster.node_of), dtype=bool)
    free[snap.usable] = True
    round_ = _Round(snap, units, free, may_stop=may_stop)
    round_.meet_guarantees()
    if not round_.changed:
        return plan
    kept = {unit.lease for unit in round_.units if unit.lease != ABSENT}
    everything = [unit.lease for unit in _running(snap, set())]
    stop = [lease for lease in everything if lease not in kept]
    return replace(plan, stop=np.array(stop, dtype=np.int64), start=round_.starts())


def guaranteed_refill(snap: Snapshot, start: Placements, idle: IntArray) -> Placements:
    """Return the jobs that start on idle devices, those of short tenants first."""
    if not has_guarantees(snap):
        return start
    units = [*_holding(snap), *_starting(snap, start)]
    free = np.zeros(len(snap.cluster.node_of), dtype=bool)
    free[idle] = True
    round_ = _Round(snap, units, free, may_stop=False)
    round_.meet_guarantees()
    return round_.starts() if round_.changed else start


@dataclass(frozen=True, slots=True)
class _Unit:
    """A job (or copy) on its devices during the round."""

    row: int
    placement: Placement
    lease: int = ABSENT
    """its lease if it runs already"""
    starts: bool = True
    """whether it starts with this plan"""


def _running(snap: Snapshot, stopped: set[int]) -> list[_Unit]:
    """Return the leases of a snapshot except stopped ones."""
    return [unit for unit in _holding(snap) if unit.lease != ABSENT and unit.lease not in stopped]


def _holding(snap: Snapshot) -> list[_Unit]:
    """Return the jobs that hold devices or wait for devices of a plan."""
    held: dict[tuple[int, int], list[int]] = {}
    lane, device = (snap.holds >= 0).nonzero()
    rows = snap.holds[lane, device]
    leases = snap.lease[rows] if snap.holds_lease is None else snap.holds_lease[lane, device]
    for row, lease, here in zip(rows.tolist(), leases.tolist(), device.tolist(), strict=True):
        held.setdefault((row, lease), []).append(here)
    return [
        _Unit(row, Placement(int(snap.job[row]), 0, tuple(devices)), lease, starts=False)
        for (row, lease), devices in held.items()
    ]


def _starting(snap: Snapshot, start: Placements) -> list[_Unit]:
    rows = snap.job.searchsorted(start.job).tolist()
    return [_Unit(row, placement) for row, placement in zip(rows, start, strict=True)]


class _Round:
    """The units of one round, while devices move to tenants that hold less than guaranteed."""

    def __init__(
        self, snap: Snapshot, units: Iterable[_Unit], free: BoolArray, *, may_stop: bool
    ) -> None:
        self._snap, self._may_stop = snap, may_stop
        self._needs = Needs.of(snap)
        self._accelerator_of = snap.cluster.accelerator_of
        self._gang = np.broadcast_to(snap.gang_on, snap.speed.shape)
        self._able: BoolArray = (snap.speed > 0) & (self._gang <= snap.capacity)
        self._before = {unit.row: unit for unit in _holding(snap) if unit.lease != ABSENT}
        self.units = list(units)
        self.changed = False
        self._open = free
        """devices on which jobs may start"""

    def meet_guarantees(self) -> None:
        """Give every holder the devices that it is guaranteed and can use."""
        for holder in range(len(self._needs.inside)):
            wanted = np.flatnonzero(self._needs.devices[holder])
            choices = self._able[self._rows(holder)].sum(axis=0)[wanted]
            for accelerator in wanted[np.argsort(choices, kind="stable")].tolist():
                self._meet(holder, accelerator)

    def starts(self) -> Placements:
        """Return the placements that start."""
        return Placements.of([unit.placement for unit in self.units if unit.starts])

    def _rows(self, holder: int) -> IntArray:
        return np.flatnonzero(self._needs.inside[holder][self._snap.tenant])

    def _meet(self, holder: int, accelerator: int) -> None:
        short = self._short(holder, accelerator)
        rows = self._candidates(holder, accelerator)
        gangs = self._gang[rows, accelerator].tolist()
        for i in fitting_jobs(gangs, short):
            self._serve(holder, int(rows[i]), accelerator)

    def _short(self, holder: int, accelerator: int) -> int:
        """Return the guaranteed devices that a holder does not have in this round."""
        held = self._held()[holder, accelerator]
        return int(np.floor(self._needs.devices[holder, accelerator] - held + 1e-9))

    def _held(self) -> FloatArray:
        """Return holders × accelerators → devices held; packed jobs count by their fraction."""
        users: dict[int, int] = {}
        for device in chain.from_iterable(unit.placement.devices for unit in self.units):
            users[device] = users.get(device, 0) + 1
        held = np.zeros(self._needs.devices.shape)
        for unit in self.units:
            holders = self._needs.covering(int(self._snap.tenant[unit.row]))
            for device in unit.placement.devices:
                held[holders, self._accelerator_of[device]] += 1.0 / users[device]
        return held

    def _candidates(self, holder: int, accelerator: int) -> IntArray:
        """Return the holder's jobs that could use an accelerator, in the order of their turn.

        First those that hold it now, then waiting ones, then those on other accelerators that
        their tenants are not guaranteed.
        """
        rows = self._rows(holder)
        rows = rows[self._able[rows, accelerator]]
        running = {unit.row: unit for unit in self.units}
        waiting = np.array([row not in running for row in rows.tolist()], dtype=bool)
        stays = np.array([self._holds(row, accelerator) for row in rows.tolist()], dtype=bool)
        others = [row for row in rows[~waiting].tolist() if self._may_move(running[row])]
        return np.concatenate(
            [
                by_turn(self._snap, rows[waiting & stays]),
                by_turn(self._snap, rows[waiting & ~stays]),
                by_turn(self._snap, np.array(others, dtype=np.int64)),
            ]
        )

    def _holds(self, row: int, accelerator: int) -> bool:
        """Return whether a job holds devices of one accelerator now."""
        unit = self._before.get(row)
        return unit is not None and all(
            self._accelerator_of[device] == accelerator for device in unit.placement.devices
        )

    def _may_move(self, unit: _Unit) -> bool:
        """Return whether a unit may leave its devices for guaranteed ones."""
        if not self._may_stop and not unit.starts:
            return False
        return self._is_spare(unit)

    def _is_spare(self, unit: _Unit) -> bool:
        """Return whether all holders around a unit keep their guarantee without its devices."""
        held = self._held()
        devices = np.bincount(
            self._accelerator_of[list(unit.placement.devices)], minlength=held.shape[1]
        )
        holders = self._needs.covering(int(self._snap.tenant[unit.row]))
        left = held[holders] - devices
        used = devices > 0
        return bool((left[:, used] >= self._needs.devices[holders][:, used] - 1e-9).all())

    def _serve(self, holder: int, row: int, accelerator: int) -> None:
        """Start a job on an accelerator, or let it stay there; evict others if necessary."""
        before = self._before.get(row)
        running = next((unit for unit in self.units if unit.row == row), None)
        stopped = before is not None and running is None and self._holds(row, accelerator)
        if before and stopped and self._evict_from(holder, before.placement.devices):
            self.units.append(before)
            self.changed = True
            return
        gang = int(self._gang[row, accelerator])
        victims = self._victims(holder, accelerator, gang)
        if victims is None:
            return
        gone = [*victims, running] if running is not None else victims
        self.units = [unit for unit in self.units if unit not in gone]
        where = place_gangs(self._snap, self._free(), np.array([row]), np.array([accelerator]))
        self.units += [_Unit(row, placement) for placement in where]
        self.changed = True
        self._restore(victims)

    def _free(self) -> BoolArray:
        free = self._open.copy()
        free[[device for unit in self.units for device in unit.placement.devices]] = False
        return free

    def _evict_from(self, holder: int, devices: Iterable[int]) -> bool:
        """Remove the units on some devices, if all of them may go; return whether they did."""
        wanted = set(devices)
        there = [unit for unit in self.units if wanted & set(unit.placement.devices)]
        if not all(self._may_evict(holder, unit) for unit in there):
            return False
        self.units = [unit for unit in self.units if unit not in there]
        self._restore(there)
        return True

    def _victims(self, holder: int, accelerator: int, gang: int) -> list[_Unit] | None:
        """Return the units to remove so that a gang finds room; None if it cannot."""
        missing = gang - int((self._free() & (self._accelerator_of == accelerator)).sum())
        victims: list[_Unit] = []
        kept = list(self.units)
        for unit in sorted(kept, key=lambda u: (not u.starts, len(u.placement.devices), -u.lease)):
            if missing <= 0:
                break
            here = [d for d in unit.placement.devices if self._accelerator_of[d] == accelerator]
            shared = set(unit.placement.devices)
            group = [u for u in self.units if shared & set(u.placement.devices)]
            if not here or not all(self._may_evict(holder, u) for u in group):
                continue
            victims += group
            self.units = [u for u in self.units if u not in group]
            missing -= len(here)
        self.units = kept
        return victims if missing <= 0 else None

    def _may_evict(self, holder: int, unit: _Unit) -> bool:
        """Return whether a unit of another tenant may lose its devices to a holder."""
        if self._needs.inside[holder, self._snap.tenant[unit.row]]:
            return False
        if not unit.starts and not self._may_stop:
            return False
        return self._is_spare(unit)

    def _restore(self, evicted: Iterable[_Unit]) -> None:
        """Let evicted jobs that would have moved stay where they run, if that is free."""
        for unit in evicted:
            before = self._before.get(unit.row)
            running = any(other.row == unit.row for other in self.units)
            if before is None or not unit.starts or running:
                continue
            if self._free()[list(before.placement.devices)].all():
                self.units.append(before)
