"""Which job holds which devices, under which lease."""

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.lease import SLOTS, Leases
from fairlead.model.plan import NOBODY

MIXED = -1
"""the accelerator of a lease whose devices are not all alike"""
_COLUMNS = ("job", "copy", "held", "accelerator", "counted_at", "leaving")


class LeaseTable:
    """Columns over slots; a slot holds one open lease and is used again after its end.

    ``holder`` is lanes × devices: the slot that holds the device, -1 when none does. Packed jobs
    share devices, each in a lane of its own.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._accelerator_of = cluster.accelerator_of
        devices = len(self._accelerator_of)
        self.holder = np.full((1, devices), -1, dtype=np.int64)
        self.lease = np.full(devices, -1, dtype=np.int64)
        self.job = np.zeros(devices, dtype=np.int64)
        self.copy = np.zeros(devices, dtype=np.int64)
        self.held = np.zeros(devices, dtype=np.int64)
        self.accelerator = np.zeros(devices, dtype=np.int64)
        self.counted_at = np.zeros(devices)
        """until when the time held has been credited to the job"""
        self.leaving = np.zeros(devices, dtype=bool)
        """told to give up its devices; cannot be renewed any more"""
        self.next_epoch = 0
        self._free = list(range(devices - 1, -1, -1))
        self._slot_of: dict[int, IntArray] = {}
        """copy → job → slot"""

    @property
    def open(self) -> IntArray:
        """The slots in use."""
        return (self.lease >= 0).nonzero()[0]

    def slots(self, leases: IntArray) -> IntArray:
        """Return the slots of these leases; refuse one that is not open."""
        slots: IntArray = leases % SLOTS
        if (slots >= len(self.lease)).any() or (self.lease[slots] != leases).any():
            raise ProtocolError(f"a lease of {leases.tolist()[:5]} is not open")
        return slots

    def jobs_held(self) -> IntArray:
        """Return lanes × devices → job that holds it and was not told to leave, else NOBODY."""
        staying = (self.holder >= 0) & ~self.leaving[self.holder]
        return np.where(staying, self.job[self.holder], NOBODY)

    def compare(self, holds: IntArray, copy: IntArray | None) -> tuple[IntArray, BoolArray]:
        """Return the slots that a plan ends and lanes × devices → is to be launched there.

        A lease whose job is to hold exactly the same devices goes on; every other lease ends,
        and every other planned job starts.
        """
        if len(holds) == 1 and len(self.holder) == 1 and copy is None and len(self._slot_of) < 2:
            return self._compare_single(holds)
        return self._compare_packed(holds, copy)

    def _compare_single(self, holds: IntArray) -> tuple[IntArray, BoolArray]:
        holder, planned = self.holder[0], holds[0]
        differs = np.where(holder >= 0, self.job[holder], NOBODY) != planned
        differs |= (holder >= 0) & self.leaving[holder]
        ends = np.zeros(len(self.lease) + 1, dtype=bool)
        ends[holder[differs]] = True
        starting = planned[differs]
        slot = self._slots_of_copy(0, planned)
        ends[slot[differs & (planned >= 0)]] = True
        ends[-1] = False
        # A gang that keeps some of its devices but not all starts anew on every one of them.
        start = (planned >= 0) & (differs | ends[slot]) if len(starting) else differs
        ends[:-1] &= ~self.leaving
        return ends.nonzero()[0], start.reshape(1, -1)

    def _compare_packed(
        self, holds: IntArray, copy: IntArray | None
    ) -> tuple[IntArray, BoolArray]:
        copies = np.zeros_like(holds) if copy is None else copy
        lane, device = (holds != NOBODY).nonzero()
        planned: dict[tuple[int, int], list[int]] = {}
        for key in zip(holds[lane, device].tolist(), copies[lane, device].tolist(), device.tolist(), strict=True):
            planned.setdefault(key[:2], []).append(key[2])
        ends = []
        for slot in self.open.tolist():
            key = (int(self.job[slot]), int(self.copy[slot]))
            has = (self.holder == slot).any(axis=0).nonzero()[0].tolist()
            if sorted(planned.get(key, [])) == has and not self.leaving[slot]:
                del planned[key]
            elif not self.leaving[slot]:
                ends.append(slot)
        start = np.zeros(holds.shape, dtype=bool)
        for job, number in planned:
            start |= (holds == job) & (copies == number)
        return np.array(ends, dtype=np.int64), start

    def start(self, holds: IntArray, copy: IntArray | None, start: BoolArray, at: float) -> Leases:
        """Open a lease for every job that is to be launched, on free lanes of its devices."""
        lane, device = start.nonzero()
        job = holds[lane, device]
        number = np.zeros_like(job) if copy is None else copy[lane, device]
        order = np.lexsort((device, number, job))
        job, number, device = job[order], number[order], device[order]
        first = np.ones(len(job), dtype=bool)
        first[1:] = (job[1:] != job[:-1]) | (number[1:] != number[:-1])
        starts = first.nonzero()[0]
        slot = self._take(len(starts))
        lease = (self.next_epoch + np.arange(len(starts))) * SLOTS + slot
        self.next_epoch += len(starts)
        bounds = np.append(starts, len(job))
        self._fill_columns(slot, lease, job[starts], number[starts], bounds, device, at)
        each = slot.repeat(bounds[1:] - bounds[:-1])
        if len(holds) == 1 and len(self.holder) == 1:
            self.holder[0, device] = each
        else:
            self._hold_packed(each, device)
        return Leases(lease, job[starts], number[starts], bounds, device)

    def _fill_columns(
        self,
        slot: IntArray,
        lease: IntArray,
        job: IntArray,
        copy: IntArray,
        bounds: IntArray,
        device: IntArray,
        at: float,
    ) -> None:
        size = bounds[1:] - bounds[:-1]
        kind = self._accelerator_of[device]
        accelerator = kind[bounds[:-1]]
        if len(device) > len(slot):
            alike = np.logical_and.reduceat(kind == accelerator.repeat(size), bounds[:-1])
            accelerator = np.where(alike, accelerator, MIXED)
        self.lease[slot] = lease
        self.job[slot] = job
        self.copy[slot] = copy
        self.held[slot] = size
        self.accelerator[slot] = accelerator
        self.counted_at[slot] = at
        self.leaving[slot] = False
        for number in (0,) if not copy.any() else np.unique(copy).tolist():
            mine = copy == number
            self._slots_of_copy(number, job)
            self._slot_of[number][job[mine]] = slot[mine]

    def _hold_packed(self, slot: IntArray, device: IntArray) -> None:
        """Give each job the first lane that is free on all of its devices."""
        for mine in np.unique(slot).tolist():
            devices = device[slot == mine]
            free = (self.holder[:, devices] < 0).all(axis=1).nonzero()[0]
            if not len(free):
                self.holder = np.vstack([self.holder, np.full_like(self.holder[:1], -1)])
                free = np.array([len(self.holder) - 1])
            self.holder[free[0], devices] = mine

    def close(self, slots: IntArray) -> None:
        """End these leases; their devices are free for the next job."""
        copies = self.copy[slots]
        for number in (0,) if not copies.any() else np.unique(copies).tolist():
            self._slot_of[number][self.job[slots[copies == number]]] = -1
        gone = np.zeros(len(self.lease) + 1, dtype=bool)
        gone[slots] = True
        self.holder[gone[self.holder]] = -1
        self.lease[slots] = -1
        self._free.extend(slots.tolist())

    def on_devices(self, devices: BoolArray) -> IntArray:
        """Return the slots that hold any of these devices."""
        held = self.holder[:, devices]
        return np.unique(held[held >= 0])

    def of_job(self, job: int) -> IntArray:
        """Return the slots that a job or its copies hold."""
        slots = self.open
        return slots[self.job[slots] == job]

    def _slots_of_copy(self, copy: int, job: IntArray) -> IntArray:
        table = self._slot_of.get(copy)
        needed = int(job.max(initial=0)) + 1
        if table is None or len(table) < needed:
            grown = np.full(2 * needed, -1, dtype=np.int64)
            if table is not None:
                grown[: len(table)] = table
            table = self._slot_of[copy] = grown
        return np.where(job >= 0, table[job], -1)

    def _take(self, count: int) -> IntArray:
        while len(self._free) < count:
            before = len(self.lease)
            for name in _COLUMNS:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
            self.lease = np.concatenate([self.lease, np.full(before, -1)])
            self._free[:0] = range(2 * before - 1, before - 1, -1)
        taken = self._free[-count:] if count else []
        del self._free[len(self._free) - count :]
        return np.array(taken, dtype=np.int64)
