"""Table of open leases and the devices that they hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairlead.compiled import compiled
from fairlead.core.jobs import FIRST_TIME_COLUMN, PROFILE, JobTable
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.lease import SLOT_LIMIT, Placements, free_lanes
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import MIXED

_EMPTY_SLOT = (-1, -1, 0, 1, -1, -1)
"""a slot's columns before its first lease: lease number, job, copy, devices held, their
accelerator, the first of them"""


class LeaseTable:
    """Columns over slots; a slot holds one open lease and is reused after its end.

    ``holder`` is lanes × devices: the slot that holds the device, -1 if none does. Packed jobs
    share devices, each in a separate lane. The last slot is never used, so that -1 indexes an
    empty row.
    """

    def __init__(self, cluster: Cluster, jobs: JobTable) -> None:
        self._accelerator_of = cluster.accelerator_of
        self._jobs = jobs
        devices = len(self._accelerator_of)
        self.holder: IntArray = np.full((1, devices), -1, dtype=np.int64)
        self.next_epoch = 0
        self.leaving_count = 0
        self.pinned: frozenset[int] = frozenset()
        """slots whose leases no plan may preempt"""
        self.simple = True
        """whether every open lease is its job's, on one accelerator: no mixed gangs, no copies"""
        self.own_steps: dict[int, float] = {}
        """slot of a copy → steps that this copy has made, as last reported"""
        self.max_steps: dict[int, float] = {}
        """slot of a copy → steps after which it leaves"""
        self._extra_device_s: dict[tuple[int, int], float] = {}
        """job, accelerator → device-seconds that ended leases of an elastic job held beyond its
        gang; negative if they held fewer"""
        self.free_slots: list[int] = []
        self.n_held = 0
        """devices held, counted once per lease"""
        self.gangs = False
        """whether any lease so far had more than one device"""
        self._reset_slots(devices)

    def extend_cluster(self, cluster: Cluster) -> None:
        """Use a cluster with additional nodes."""
        more = len(cluster.accelerator_of) - len(self._accelerator_of)
        self._accelerator_of = cluster.accelerator_of
        free = np.full((len(self.holder), more), -1, dtype=np.int64)
        self.holder = np.hstack([self.holder, free])

    def _set_columns(
        self, ints: tuple[IntArray, ...], counted_at: FloatArray, leaving: BoolArray
    ) -> None:
        self._columns = ints
        self.lease, self.job, self.copy, self._size, self.accelerator, self.first = ints
        self.counted_at = counted_at
        """instant up to which the time held has been credited to the job"""
        self.leaving = leaving
        """slots → the lease was preempted and cannot be renewed"""

    def __len__(self) -> int:
        return len(self.lease) - 1 - len(self.free_slots)

    @property
    def packed(self) -> bool:
        """Whether jobs have ever shared devices."""
        return len(self.holder) > 1

    @property
    def open(self) -> IntArray:
        """The slots in use."""
        return (self.lease >= 0).nonzero()[0]

    @property
    def active_slots(self) -> IntArray:
        """The slots in use whose lease was not preempted."""
        if not self.leaving_count:
            return self.open
        return ((self.lease >= 0) & ~self.leaving).nonzero()[0]

    @property
    def nonstandard_slots(self) -> IntArray:
        """The active slots that share devices, mix accelerators, or differ from the job's gang."""
        slots = self.active_slots
        on = zip(self.job[slots].tolist(), self.accelerator[slots].tolist(), strict=True)
        gang = np.array([self._jobs.gang_on(job, accelerator) for job, accelerator in on])
        odd = (self._size[slots] != gang) | (self.copy[slots] > 0)
        odd |= self.accelerator[slots] == MIXED
        shared = np.count_nonzero(self.holder >= 0, axis=0) > 1
        nonstandard: IntArray = slots[odd | np.isin(slots, self.on_devices(shared))]
        return nonstandard

    def slots(self, leases: IntArray) -> IntArray:
        """Return the slots of these leases; raise ProtocolError if one is not open."""
        slots: IntArray = leases & (SLOT_LIMIT - 1)
        if np.count_nonzero(self.lease.take(slots, mode="clip") != leases):
            raise ProtocolError(f"lease not open: one of {leases.tolist()[:5]}")
        return slots

    def is_open(self, leases: IntArray) -> BoolArray:
        """leases → it is open and was not preempted."""
        slots = np.minimum(leases & (SLOT_LIMIT - 1), len(self.lease) - 1)
        still: BoolArray = (self.lease[slots] == leases) & ~self.leaving[slots]
        return still & (leases >= 0)

    def of_job(self, job: int) -> IntArray:
        """Return the slots that a job or its copies hold."""
        slots = self.open
        own: IntArray = slots[self.job[slots] == job]
        return own

    def hold_open(self, jobs: IntArray) -> BoolArray:
        """jobs → it or one of its copies has an open lease."""
        if self.simple:
            return self._jobs.lease[jobs] >= 0
        return np.isin(jobs, self.job[self.open])

    def sizes(self, slots: IntArray) -> IntArray:
        """slots → devices that the lease holds."""
        return self._size[slots]

    def devices_of(self, lease: int) -> int:
        """Return the number of devices a lease holds; 0 if it is not open."""
        slot = lease & (SLOT_LIMIT - 1)
        if lease < 0 or slot >= len(self.lease) or self.lease[slot] != lease:
            return 0
        return int(self._size[slot])

    @property
    def free_devices(self) -> BoolArray:
        """devices → no lease holds it."""
        held = self.holder[0] if len(self.holder) == 1 else self.holder.max(axis=0)
        free: BoolArray = held < 0
        return free

    def on_devices(self, devices: BoolArray) -> IntArray:
        """Return the slots that hold any of these devices."""
        held = self.holder[:, devices]
        return np.unique(held[held >= 0])

    def waits_for_release(self, units: Placements) -> BoolArray:
        """placements → a preempted lease still holds one of its devices."""
        if not self.packed and len(units.device) == len(units):
            still: BoolArray = self.leaving[self.holder[0, units.device]]
            return still
        return units.any_device(np.logical_or.reduce(self.leaving[self.holder], axis=0))

    def mark_leaving(self, slots: IntArray) -> None:
        """Mark these leases as preempted."""
        self.leaving[slots] = True
        self.leaving_count += len(slots)

    def pin_only(self, slots: IntArray) -> None:
        """Keep exactly the leases in these slots in place."""
        self.pinned = frozenset(slots.tolist())

    def pinned_devices(self) -> BoolArray:
        """devices → a pinned lease that was not preempted holds it."""
        slots = np.zeros(len(self.lease), dtype=bool)
        slots[list(self.pinned)] = True
        held: BoolArray = np.logical_or.reduce((slots & ~self.leaving)[self.holder], axis=0)
        return held

    def start(self, units: Placements, at: float) -> IntArray:
        """Open a lease per placement, on free lanes of its devices; return the lease numbers."""
        lease = self._number(len(units))
        slot = lease & (SLOT_LIMIT - 1)
        single = len(units.device) == len(slot)
        first = units.device if single else units.device[units.start[:-1]]
        accelerator = self._accelerator_of[first]
        self.lease[slot] = lease
        self.job[slot] = units.job
        self.first[slot] = first
        self.counted_at[slot] = at
        if not single:
            self._record_gang_sizes(units, slot, accelerator)
        self.accelerator[slot] = accelerator
        copies = np.count_nonzero(units.copy)
        self._assign_devices(units, slot)
        if self.simple and not copies:
            self._jobs.on[units.job] = accelerator
            self._jobs.lease[units.job] = lease
        else:
            self.simple &= not copies
            self.copy[slot] = units.copy
            own = units.copy == 0
            self.own_steps.update(dict.fromkeys(slot[~own].tolist(), 0.0))
            if units.max_steps is not None:
                limits = zip(slot[~own].tolist(), units.max_steps[~own].tolist(), strict=True)
                self.max_steps.update(limits)
            self._jobs.on[units.job] = accelerator
            self._jobs.lease[units.job[own]] = lease[own]
        return lease

    def _record_gang_sizes(self, units: Placements, slot: IntArray, accelerator: IntArray) -> None:
        size = self._size[slot] = units.size
        each = self._accelerator_of[units.device]
        alike = np.logical_and.reduceat(each == accelerator.repeat(size), units.start[:-1])
        accelerator[~alike] = MIXED
        self.gangs = True
        self.simple &= bool(alike.all())

    def _assign_devices(self, units: Placements, slot: IntArray) -> None:
        device = units.device
        each = slot if len(device) == len(slot) else slot.repeat(units.size)
        self.n_held += len(device)
        if not self.packed:
            holder = self.holder[0]
            before = holder[device]
            holder[device] = each
            if np.count_nonzero(holder >= 0) == self.n_held:
                return
            holder[device] = before  # some of these jobs share a device
        if len(device) == len(slot):
            self.holder, lane = free_lanes(self.holder, device)
            self.holder[lane, device] = slot
            return
        start = units.start.tolist()
        for i, own in enumerate(slot.tolist()):
            devices = device[start[i] : start[i + 1]]
            free = np.flatnonzero((self.holder[:, devices] < 0).all(axis=1))
            if not len(free):
                self.holder = np.vstack([self.holder, np.full_like(self.holder[:1], -1)])
            self.holder[free[0] if len(free) else -1, devices] = own

    def _number(self, count: int) -> IntArray:
        if len(self.free_slots) < count:
            self._add_slots(max(count, len(self.lease)))
        left = len(self.free_slots) - count
        slots = self.free_slots[left:]
        del self.free_slots[left:]
        numbers = [epoch * SLOT_LIMIT + slot for epoch, slot in enumerate(slots, self.next_epoch)]
        self.next_epoch += count
        return np.array(numbers, dtype=np.int64)

    def close(self, slots: IntArray) -> None:
        """End these leases and free their devices."""
        if self.packed or self.gangs:
            self.n_held -= int(self._size[slots].sum())
            self._size[slots] = 1
            gone = np.zeros(len(self.lease), dtype=bool)
            gone[slots] = True
            self.holder[gone[self.holder]] = -1
        else:
            self.n_held -= len(slots)
            self.holder[0][self.first[slots]] = -1
        job = self.job[slots]
        self.lease[slots] = -1
        if self.simple:
            self._jobs.on[job] = ABSENT
            self._jobs.lease[job] = ABSENT
        else:
            self._jobs.lease[job[self.copy[slots] == 0]] = ABSENT
            self.copy[slots] = 0
            still = self.open
            self._jobs.on[job[~np.isin(job, self.job[still])]] = ABSENT
            for slot in slots.tolist():
                self.own_steps.pop(slot, None)
                self.max_steps.pop(slot, None)
            self.simple = not self.copy[still].any() and MIXED not in self.accelerator[still]
        if self.leaving_count:
            self.leaving_count -= int(np.count_nonzero(self.leaving[slots]))
            self.leaving[slots] = False
        if self.pinned:
            self.pinned -= set(slots.tolist())
        self.free_slots += slots.tolist()

    def credit(self, slots: IntArray, rows: IntArray, until: float, numbers: FloatArray) -> None:
        """Add the time for which these leases held each accelerator to rows of a job table."""
        if numbers is self._jobs.numbers:  # of ending leases; snapshots pass a copy of the table
            self._add_extra_device_s(slots, until, self._extra_device_s)
        if not self.simple and (mixed := self.accelerator[slots] == MIXED).any():
            self._credit_mixed(slots[mixed], rows[mixed], until, numbers)
            slots, rows = slots[~mixed], rows[~mixed]
        if compiled is not None:
            compiled.credit(
                slots, rows, until, self.counted_at, self.accelerator, numbers, FIRST_TIME_COLUMN
            )
            return
        column = self.accelerator[slots] + FIRST_TIME_COLUMN
        np.add.at(numbers, (rows, column), until - self.counted_at[slots])

    def _credit_mixed(
        self, slots: IntArray, rows: IntArray, until: float, numbers: FloatArray
    ) -> None:
        """Divide the time of mixed gangs among accelerators like their devices."""
        into = numbers[:, FIRST_TIME_COLUMN:]
        for slot, row in zip(slots.tolist(), rows.tolist(), strict=True):
            devices = (self.holder == slot).any(axis=0).nonzero()[0]
            each_s = (until - float(self.counted_at[slot])) / len(devices)
            np.add.at(into[row], self._accelerator_of[devices], each_s)

    def device_s(self, at: float) -> FloatArray:
        """Return jobs × accelerators → device-seconds held until ``at``."""
        jobs, slots = self._jobs, self.open
        numbers, profile = jobs.numbers[: len(jobs)].copy(), jobs.ints[: len(jobs), PROFILE]
        self.credit(slots, self.job[slots], at, numbers)
        held: FloatArray = numbers[:, FIRST_TIME_COLUMN:] * jobs.profiles.gang_on[profile]
        beyond = dict(self._extra_device_s)
        self._add_extra_device_s(slots, at, beyond)
        for (job, accelerator), more in beyond.items():
            held[job, accelerator] += more
        return held

    def _add_extra_device_s(
        self, slots: IntArray, until: float, beyond: dict[tuple[int, int], float]
    ) -> None:
        """Add the device-seconds that these leases held beyond their jobs' gangs."""
        if self._jobs.profiles.min_gang is None:
            return
        for slot in slots.tolist():
            job, size = int(self.job[slot]), int(self._size[slot])
            more = size - self._jobs.gang_on(job, int(self.accelerator[slot]))
            if not more:
                continue
            each_s = (until - float(self.counted_at[slot])) * more / size
            devices = (self.holder == slot).any(axis=0)
            for accelerator in self._accelerator_of[devices].tolist():
                beyond[job, accelerator] = beyond.get((job, accelerator), 0.0) + each_s

    def _reset_slots(self, slots: int) -> None:
        """Start with this number of slots, all of them free."""
        ints = tuple(np.full(1, value) for value in _EMPTY_SLOT)
        self._set_columns(ints, np.zeros(1), np.zeros(1, dtype=bool))
        self.free_slots = []
        self._add_slots(slots)

    def _add_slots(self, count: int) -> None:
        before = len(self.lease) - 1
        zeros = np.zeros(count)
        self._set_columns(
            tuple(
                np.concatenate([column, np.full(count, value)])
                for column, value in zip(self._columns, _EMPTY_SLOT, strict=True)
            ),
            np.concatenate([self.counted_at, zeros]),
            np.concatenate([self.leaving, zeros.astype(bool)]),
        )
        self.free_slots[:0] = range(before + count - 1, before - 1, -1)

    def saved(self) -> dict[str, object]:
        """Return the table's content, for ``restore``; later lease numbers will be the same."""
        return {**self.columns(), "free": self.free_slots, "simple": self.simple}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the content that ``saved`` returned."""
        ints, leases = saved["ints"], saved["holder"]
        slots = ints[:, 0] & (SLOT_LIMIT - 1)
        wanted = max([*slots.tolist(), *saved["free"]], default=-1) + 1
        # Not more: slots that are neither free nor open would count as open.
        self._reset_slots(wanted)
        for column, values in zip(self._columns, ints.T, strict=True):
            column[slots] = values
        self.n_held = int(self._size[slots].sum())
        self.gangs = bool((self._size[slots] > 1).any())
        self.counted_at[slots] = saved["counted_at"]
        self.leaving[slots] = saved["leaving"]
        self.pinned = frozenset(saved.get("pinned", ()))
        self.holder = np.where(leases >= 0, leases & (SLOT_LIMIT - 1), -1)
        self.next_epoch = saved["next_epoch"]
        self.leaving_count = int(np.count_nonzero(saved["leaving"]))
        self.simple = saved["simple"]
        self.own_steps = dict(saved.get("own_steps", ()))
        self.max_steps = dict(saved.get("max_steps", ()))
        self._extra_device_s = {
            (job, accelerator): more for job, accelerator, more in saved.get("beyond", ())
        }
        self.free_slots = list(saved["free"])

    def columns(self) -> dict[str, object]:
        """Return the open leases' columns."""
        slots = self.open
        columns: dict[str, object] = {
            "ints": np.column_stack([column[slots] for column in self._columns]),
            "counted_at": self.counted_at[slots],
            "leaving": self.leaving[slots],
            "holder": self.lease[self.holder],
            "next_epoch": self.next_epoch,
            "own_steps": sorted(self.own_steps.items()),
        }
        if self.max_steps:
            columns["max_steps"] = sorted(self.max_steps.items())
        if self.pinned:
            columns["pinned"] = sorted(self.pinned)
        if self._extra_device_s:
            columns["beyond"] = [
                (*where, more) for where, more in sorted(self._extra_device_s.items())
            ]
        return columns
