"""Which job holds which devices, under which lease."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairlead.compiled import compiled
from fairlead.core.jobs import FIRST_TIME_COLUMN, PROFILE, JobTable
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.lease import SLOTS, Placements
from fairlead.model.plan import NOBODY
from fairlead.model.snapshot import MIXED

_EMPTY_SLOT = (-1, -1, 0, 1, -1, -1)
"""what a slot's columns hold before its first lease: lease number, job, copy, devices held,
their accelerator, the first of them"""


class LeaseTable:
    """Columns over slots; a slot holds one open lease and is used again after its end.

    ``holder`` is lanes × devices: the slot that holds the device, -1 when none does. Packed jobs
    share devices, each in a lane of its own. The last slot is never used, so that -1 finds an
    empty row.
    """

    def __init__(self, cluster: Cluster, jobs: JobTable) -> None:
        self._accelerator_of = cluster.accelerator_of
        self._jobs = jobs
        devices = len(self._accelerator_of)
        self.holder: IntArray = np.full((1, devices), -1, dtype=np.int64)
        self.next_epoch = 0
        self.leaving_count = 0
        self.simple = True
        """no lease so far was mixed or a further copy: a job has one lease on one accelerator"""
        self.own_steps: dict[int, float] = {}
        """slots of forked jobs' copies → steps each has made itself, as last reported"""
        self._extra_device_s: dict[tuple[int, int], float] = {}
        """job, accelerator → device-seconds that ended leases of elastic jobs held beyond those of
        its gang, below 0 where they held fewer"""
        self._free: list[int] = []
        self._n_held = 0
        """devices held, counted once for each lease that holds them"""
        self._gangs = False
        """whether a lease so far had more devices than one"""
        self._reset_slots(devices)

    def use(self, cluster: Cluster) -> None:
        """Go on with a cluster that has further nodes."""
        more = len(cluster.accelerator_of) - len(self._accelerator_of)
        self._accelerator_of = cluster.accelerator_of
        free = np.full((len(self.holder), more), -1, dtype=np.int64)
        self.holder = np.hstack([self.holder, free])

    def _lay_out(
        self, ints: tuple[IntArray, ...], counted_at: FloatArray, leaving: BoolArray
    ) -> None:
        self._columns = ints
        self.lease, self.job, self.copy, self._size, self._kind, self._first = ints
        self.counted_at = counted_at
        """until when the time held has been credited to the job"""
        self.leaving = leaving
        """told to give up its devices; cannot be renewed any more"""

    def __len__(self) -> int:
        return len(self.lease) - 1 - len(self._free)

    @property
    def packed(self) -> bool:
        """Whether jobs have ever shared devices."""
        return len(self.holder) > 1

    @property
    def open(self) -> IntArray:
        """The slots in use."""
        return (self.lease >= 0).nonzero()[0]

    @property
    def staying(self) -> IntArray:
        """The slots in use that were not told to leave."""
        if not self.leaving_count:
            return self.open
        return ((self.lease >= 0) & ~self.leaving).nonzero()[0]

    @property
    def nonstandard_slots(self) -> IntArray:
        """The slots that stay and share devices, mix accelerators, or have not the job's gang."""
        slots = self.staying
        on = zip(self.job[slots].tolist(), self._kind[slots].tolist(), strict=True)
        gang = np.array([self._jobs.gang_on(job, kind) for job, kind in on])
        odd = (self._size[slots] != gang) | (self._kind[slots] == MIXED) | (self.copy[slots] > 0)
        shared = np.count_nonzero(self.holder >= 0, axis=0) > 1
        found: IntArray = slots[odd | np.isin(slots, self.on_devices(shared))]
        return found

    def slots(self, leases: IntArray) -> IntArray:
        """Return the slots of these leases; refuse one that is not open."""
        slots: IntArray = leases & (SLOTS - 1)
        if np.count_nonzero(self.lease.take(slots, mode="clip") != leases):
            raise ProtocolError(f"a lease of {leases.tolist()[:5]} is not open")
        return slots

    def is_open(self, leases: IntArray) -> BoolArray:
        """leases → it is open and was not told to leave."""
        slots = np.minimum(leases & (SLOTS - 1), len(self.lease) - 1)
        still: BoolArray = (self.lease[slots] == leases) & ~self.leaving[slots]
        return still

    def of_job(self, job: int) -> IntArray:
        """Return the slots that a job or its copies hold."""
        slots = self.open
        mine: IntArray = slots[self.job[slots] == job]
        return mine

    def sizes(self, slots: IntArray) -> IntArray:
        """slots → devices that the lease holds."""
        return self._size[slots]

    def devices_of(self, lease: int) -> int:
        """Return how many devices a lease holds; 0 for one that is not open, NOBODY included."""
        slot = lease & (SLOTS - 1)
        if lease < 0 or slot >= len(self.lease) or self.lease[slot] != lease:
            return 0
        return int(self._size[slot])

    @property
    def free_devices(self) -> BoolArray:
        """devices → nobody holds it."""
        held = self.holder[0] if len(self.holder) == 1 else self.holder.max(axis=0)
        free: BoolArray = held < 0
        return free

    def on_devices(self, devices: BoolArray) -> IntArray:
        """Return the slots that hold any of these devices."""
        held = self.holder[:, devices]
        return np.unique(held[held >= 0])

    def vacating(self, units: Placements) -> BoolArray:
        """placements → somebody who was told to leave still holds a device of it."""
        if not self.packed and len(units.device) == len(units):
            still: BoolArray = self.leaving[self.holder[0, units.device]]
            return still
        return units.any_device(np.logical_or.reduce(self.leaving[self.holder], axis=0))

    def leave(self, slots: IntArray) -> None:
        """Note that these leases were told to give up their devices."""
        self.leaving[slots] = True
        self.leaving_count += len(slots)

    def start(self, units: Placements, at: float) -> IntArray:
        """Open a lease for every placement, on free lanes of its devices; return the numbers."""
        lease = self._number(len(units))
        slot = lease & (SLOTS - 1)
        single = len(units.device) == len(slot)
        first = units.device if single else units.device[units.start[:-1]]
        kind = self._accelerator_of[first]
        self.lease[slot] = lease
        self.job[slot] = units.job
        self._first[slot] = first
        self.counted_at[slot] = at
        if not single:
            self._record_gang_sizes(units, slot, kind)
        self._kind[slot] = kind
        copies = np.count_nonzero(units.copy)
        self._hold(units, slot)
        if self.simple and not copies:
            self._jobs.on[units.job] = kind
            self._jobs.lease[units.job] = lease
        else:
            self.simple &= not copies
            self.copy[slot] = units.copy
            own = units.copy == 0
            self.own_steps.update(dict.fromkeys(slot[~own].tolist(), 0.0))
            self._jobs.on[units.job] = kind
            self._jobs.lease[units.job[own]] = lease[own]
        return lease

    def _record_gang_sizes(self, units: Placements, slot: IntArray, kind: IntArray) -> None:
        size = self._size[slot] = units.size
        each = self._accelerator_of[units.device]
        alike = np.logical_and.reduceat(each == kind.repeat(size), units.start[:-1])
        kind[~alike] = MIXED
        self._gangs = True
        self.simple &= bool(alike.all())

    def _hold(self, units: Placements, slot: IntArray) -> None:
        device = units.device
        each = slot if len(device) == len(slot) else slot.repeat(units.size)
        self._n_held += len(device)
        if not self.packed:
            holder = self.holder[0]
            before = holder[device]
            holder[device] = each
            if np.count_nonzero(holder >= 0) == self._n_held:
                return
            holder[device] = before  # some of these jobs share a device
        start = units.start.tolist()
        for i, mine in enumerate(slot.tolist()):
            devices = device[start[i] : start[i + 1]]
            free = np.flatnonzero((self.holder[:, devices] < 0).all(axis=1))
            if not len(free):
                self.holder = np.vstack([self.holder, np.full_like(self.holder[:1], -1)])
            self.holder[free[0] if len(free) else -1, devices] = mine

    def _number(self, count: int) -> IntArray:
        if len(self._free) < count:
            self._add_slots(max(count, len(self.lease)))
        left = len(self._free) - count
        slots = self._free[left:]
        del self._free[left:]
        numbers = [epoch * SLOTS + slot for epoch, slot in enumerate(slots, self.next_epoch)]
        self.next_epoch += count
        return np.array(numbers, dtype=np.int64)

    def close(self, slots: IntArray) -> None:
        """End these leases; their devices are free for the next job."""
        if self.packed or self._gangs:
            self._n_held -= int(self._size[slots].sum())
            self._size[slots] = 1
            gone = np.zeros(len(self.lease), dtype=bool)
            gone[slots] = True
            self.holder[gone[self.holder]] = -1
        else:
            self._n_held -= len(slots)
            self.holder[0][self._first[slots]] = -1
        job = self.job[slots]
        self.lease[slots] = -1
        if self.simple:
            self._jobs.on[job] = NOBODY
            self._jobs.lease[job] = NOBODY
        else:
            self._jobs.lease[job[self.copy[slots] == 0]] = NOBODY
            self.copy[slots] = 0
            for number in job.tolist():
                if not len(self.of_job(number)):
                    self._jobs.on[number] = NOBODY
            for slot in slots.tolist():
                self.own_steps.pop(slot, None)
        if self.leaving_count:
            self.leaving_count -= int(np.count_nonzero(self.leaving[slots]))
            self.leaving[slots] = False
        self._free += slots.tolist()

    def credit(self, slots: IntArray, rows: IntArray, until: float, numbers: FloatArray) -> None:
        """Add to rows of a job table the time for which these leases held each accelerator."""
        if numbers is self._jobs.numbers:  # of leases that end: others' time goes into copies
            self._add_extra_device_s(slots, until, self._extra_device_s)
        if self.simple and compiled is not None:
            compiled.credit(
                slots, rows, until, self.counted_at, self._kind, numbers, FIRST_TIME_COLUMN
            )
            return
        held = until - self.counted_at[slots]
        if self.simple:
            # One flat index is several times faster than a pair of them.
            at = rows * numbers.shape[1] + (self._kind[slots] + FIRST_TIME_COLUMN)
            numbers.reshape(-1)[at] += held
            return
        into = numbers[:, FIRST_TIME_COLUMN:]
        for slot, row, time in zip(slots.tolist(), rows.tolist(), held.tolist(), strict=True):
            # A mixed gang's time counts for each accelerator by the part of the gang on it.
            devices = (self.holder == slot).any(axis=0).nonzero()[0]
            np.add.at(into[row], self._accelerator_of[devices], time / len(devices))

    def device_s(self, at: float) -> FloatArray:
        """Return jobs × accelerators → seconds held until now, for each device held."""
        jobs, slots = self._jobs, self.open
        numbers, profile = jobs.numbers[: len(jobs)].copy(), jobs.ints[: len(jobs), PROFILE]
        self.credit(slots, self.job[slots], at, numbers)
        held: FloatArray = numbers[:, FIRST_TIME_COLUMN:] * jobs.profiles.gang_on[profile]
        beyond = dict(self._extra_device_s)
        self._add_extra_device_s(slots, at, beyond)
        for (job, kind), more in beyond.items():
            held[job, kind] += more
        return held

    def _add_extra_device_s(
        self, slots: IntArray, until: float, beyond: dict[tuple[int, int], float]
    ) -> None:
        """Add what these leases held beyond their jobs' gangs to jobs' accelerators."""
        if self._jobs.profiles.min_gang is None:
            return
        for slot in slots.tolist():
            job, size = int(self.job[slot]), int(self._size[slot])
            more = size - self._jobs.gang_on(job, int(self._kind[slot]))
            if not more:
                continue
            each_s = (until - float(self.counted_at[slot])) * more / size
            devices = (self.holder == slot).any(axis=0)
            for kind in self._accelerator_of[devices].tolist():
                beyond[job, kind] = beyond.get((job, kind), 0.0) + each_s

    def _reset_slots(self, slots: int) -> None:
        """Start with so many slots, all of them free."""
        ints = tuple(np.full(1, value) for value in _EMPTY_SLOT)
        self._lay_out(ints, np.zeros(1), np.zeros(1, dtype=bool))
        self._free = []
        self._add_slots(slots)

    def _add_slots(self, count: int) -> None:
        before = len(self.lease) - 1
        zeros = np.zeros(count)
        self._lay_out(
            tuple(
                np.concatenate([column, np.full(count, value)])
                for column, value in zip(self._columns, _EMPTY_SLOT, strict=True)
            ),
            np.concatenate([self.counted_at, zeros]),
            np.concatenate([self.leaving, zeros.astype(bool)]),
        )
        self._free[:0] = range(before + count - 1, before - 1, -1)

    def saved(self) -> dict[str, object]:
        """Return what a new table needs to become this one, and to number leases as it would."""
        return {**self.columns(), "free": self._free, "simple": self.simple}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Become the table that gave ``saved``."""
        ints, leases = saved["ints"], saved["holder"]
        slots = ints[:, 0] & (SLOTS - 1)
        wanted = max([*slots.tolist(), *saved["free"]], default=-1) + 1
        self._reset_slots(
            wanted
        )  # not more: slots that are neither free nor open would count as open
        for column, values in zip(self._columns, ints.T, strict=True):
            column[slots] = values
        self._n_held = int(self._size[slots].sum())
        self._gangs = bool((self._size[slots] > 1).any())
        self.counted_at[slots] = saved["counted_at"]
        self.leaving[slots] = saved["leaving"]
        self.holder = np.where(leases >= 0, leases & (SLOTS - 1), -1)
        self.next_epoch = saved["next_epoch"]
        self.leaving_count = int(np.count_nonzero(saved["leaving"]))
        self.simple = saved["simple"]
        self.own_steps = dict(saved.get("own_steps", ()))
        self._extra_device_s = {(job, kind): more for job, kind, more in saved.get("beyond", ())}
        self._free = list(saved["free"])

    def columns(self) -> dict[str, object]:
        """Return what makes up the table's state."""
        slots = self.open
        columns: dict[str, object] = {
            "ints": np.column_stack([column[slots] for column in self._columns]),
            "counted_at": self.counted_at[slots],
            "leaving": self.leaving[slots],
            "holder": self.lease[self.holder],
            "next_epoch": self.next_epoch,
            "own_steps": sorted(self.own_steps.items()),
        }
        if self._extra_device_s:
            columns["beyond"] = [
                (*where, more) for where, more in sorted(self._extra_device_s.items())
            ]
        return columns
