"""Which job holds which devices, under which lease."""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.lease import SLOTS, Leases
from fairlead.model.plan import NOBODY

MIXED = -1
"""the accelerator of a lease whose devices are not all alike"""

_INTS = LEASE, JOB, COPY, HELD, KIND = range(5)


class LeaseTable:
    """Columns over slots; a slot holds one open lease and is used again after its end.

    ``holder`` is lanes × devices: the slot that holds the device, -1 when none does. Packed jobs
    share devices, each in a lane of its own. The last slot is never used, so that -1 finds an
    empty row.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._accelerator_of = cluster.accelerator_of
        devices = len(self._accelerator_of)
        self.holder: IntArray = np.full((1, devices), -1, dtype=np.int64)
        self.next_epoch = 0
        self.simple = True
        """no lease so far was packed, mixed or a further copy: the fast paths hold"""
        self._free: list[int] = []
        self._slot_of: dict[int, IntArray] = {0: np.full(64, -1, dtype=np.int64)}
        """copy → job → slot"""
        empty = np.full((1, len(_INTS)), -1, dtype=np.int64)
        self._lay_out(empty, np.zeros(1), np.zeros(1, dtype=bool))
        self._add_slots(devices)

    def _lay_out(self, ints: IntArray, counted_at: FloatArray, leaving: BoolArray) -> None:
        self._ints = ints
        self.lease = ints[:, LEASE]
        self.job = ints[:, JOB]
        self.copy = ints[:, COPY]
        self.held = ints[:, HELD]
        self.accelerator = ints[:, KIND]
        self.counted_at = counted_at
        """until when the time held has been credited to the job"""
        self.leaving = leaving
        """told to give up its devices; cannot be renewed any more"""

    def __len__(self) -> int:
        return len(self.lease) - 1 - len(self._free)

    @property
    def open(self) -> IntArray:
        """The slots in use."""
        return (self.lease >= 0).nonzero()[0]

    @property
    def staying(self) -> IntArray:
        """The slots in use that were not told to leave."""
        return ((self.lease >= 0) & ~self.leaving).nonzero()[0]

    def slots(self, leases: IntArray) -> IntArray:
        """Return the slots of these leases; refuse one that is not open."""
        slots: IntArray = leases & (SLOTS - 1)
        found = self.lease.take(slots, mode="clip")
        if np.count_nonzero(found != leases):
            raise ProtocolError(f"a lease of {leases.tolist()[:5]} is not open")
        return slots

    def of_job(self, job: int) -> IntArray:
        """Return the slots that a job or its copies hold."""
        slots = self.open
        mine: IntArray = slots[self.job[slots] == job]
        return mine

    def on_devices(self, devices: BoolArray) -> IntArray:
        """Return the slots that hold any of these devices."""
        held = self.holder[:, devices]
        return np.unique(held[held >= 0])

    def compare(self, holds: IntArray, copy: IntArray | None) -> tuple[IntArray, BoolArray]:
        """Return the slots that a plan ends and lanes × devices → is to be launched there.

        A lease whose job is to hold exactly the same devices goes on; every other lease ends,
        and every other planned job starts.
        """
        if self.simple and len(holds) == 1 and copy is None:
            return self._compare_simple(holds[0])
        return self._compare_any(holds, np.zeros_like(holds) if copy is None else copy)

    def _compare_simple(self, planned: IntArray) -> tuple[IntArray, BoolArray]:
        holder = self.holder[0]
        differs = (self.job[holder] != planned) | self.leaving[holder]
        ends = np.zeros(len(self.lease), dtype=bool)
        ends[holder[differs]] = True
        slot = self._slots_of(0, planned)
        ends[slot[differs]] = True
        ends[-1] = False
        # A gang that keeps some of its devices but not all starts anew on every one of them.
        start = (differs | ends[slot]) & (planned >= 0)
        ends &= ~self.leaving
        return ends.nonzero()[0], start.reshape(1, -1)

    def _compare_any(self, holds: IntArray, copies: IntArray) -> tuple[IntArray, BoolArray]:
        lane, device = (holds != NOBODY).nonzero()
        planned: dict[tuple[int, int], list[int]] = {}
        jobs, numbers = holds[lane, device].tolist(), copies[lane, device].tolist()
        for job, copy, where in zip(jobs, numbers, device.tolist(), strict=True):
            planned.setdefault((job, copy), []).append(where)
        ends = []
        for slot in self.staying.tolist():
            has = (self.holder == slot).any(axis=0).nonzero()[0].tolist()
            run = (int(self.job[slot]), int(self.copy[slot]))
            if sorted(planned.get(run, ())) == has:
                del planned[run]
            else:
                ends.append(slot)
        start = np.zeros(holds.shape, dtype=bool)
        for job, copy in planned:
            start |= (holds == job) & (copies == copy)
        return np.array(ends, dtype=np.int64), start

    def start(self, holds: IntArray, copy: IntArray | None, start: BoolArray, at: float) -> Leases:
        """Open a lease for every job that is to be launched, on free lanes of its devices."""
        lane, device = start.nonzero()
        job = holds[lane, device]
        number = np.zeros_like(job) if copy is None else copy[lane, device]
        order = job.argsort(kind="stable") if copy is None else np.lexsort((device, number, job))
        job, number, device = job[order], number[order], device[order]
        first = np.empty(len(job), dtype=bool)
        first[0] = True
        np.not_equal(job[1:], job[:-1], out=first[1:])
        if copy is not None:
            first[1:] |= number[1:] != number[:-1]
        starts = first.nonzero()[0]
        bounds = np.append(starts, len(job))
        leases = Leases(self._number(len(starts)), job[starts], number[starts], bounds, device)
        self._enter(leases, at, packed=len(holds) > 1)
        return leases

    def _number(self, count: int) -> IntArray:
        if len(self._free) < count:
            self._add_slots(max(count, len(self.lease)))
        slots = self._free[-count:]
        del self._free[-count:]
        numbers = np.arange(self.next_epoch, self.next_epoch + count) * SLOTS
        self.next_epoch += count
        numbers += slots
        return numbers

    def _enter(self, leases: Leases, at: float, *, packed: bool) -> None:
        slot = leases.lease & (SLOTS - 1)
        size = leases.start[1:] - leases.start[:-1]
        kind = self._accelerator_of[leases.device]
        row = np.empty((len(slot), len(_INTS)), dtype=np.int64)
        row[:, LEASE] = leases.lease
        row[:, JOB] = leases.job
        row[:, COPY] = leases.copy
        row[:, HELD] = size
        row[:, KIND] = kind[leases.start[:-1]]
        each = slot
        if len(kind) > len(slot):
            each = slot.repeat(size)
            first = leases.start[:-1]
            alike = np.logical_and.reduceat(kind == row[:, KIND].repeat(size), first)
            row[:, KIND][~alike] = MIXED
            self.simple &= bool(alike.all())
        self._ints[slot] = row
        self.counted_at[slot] = at
        self.simple &= not packed and not bool(leases.copy.any())
        if self.simple:
            self._slots_of(0, leases.job)
            self._slot_of[0][leases.job] = slot
            self.holder[0, leases.device] = each
            return
        for lease_slot, job, copy in row[:, [LEASE, JOB, COPY]].tolist():
            self._slots_of(copy, np.array([job]))
            self._slot_of[copy][job] = lease_slot & (SLOTS - 1)
        self._hold_packed(each, leases.device)

    def _hold_packed(self, slot: IntArray, device: IntArray) -> None:
        """Give each job the first lane that is free on all of its devices."""
        for mine in dict.fromkeys(slot.tolist()):
            devices = device[slot == mine]
            taken = (self.holder[:, devices] >= 0).any(axis=1).tolist()
            lane = taken.index(False) if False in taken else len(taken)
            if lane == len(taken):
                self.holder = np.vstack([self.holder, np.full_like(self.holder[:1], -1)])
            self.holder[lane, devices] = mine

    def close(self, slots: IntArray) -> None:
        """End these leases; their devices are free for the next job."""
        if self.simple:
            self._slot_of[0][self.job[slots]] = -1
        else:
            for job, copy in self._ints[slots][:, [JOB, COPY]].tolist():
                self._slot_of[copy][job] = -1
        gone = np.zeros(len(self.lease), dtype=bool)
        gone[slots] = True
        self.holder[gone[self.holder]] = -1
        self._ints[slots] = -1
        self.leaving[slots] = False
        self._free += slots.tolist()

    def _slots_of(self, copy: int, job: IntArray) -> IntArray:
        """Return the slot each job holds with this copy, -1 where it (or NOBODY) holds none."""
        table = self._slot_of.get(copy)
        needed = int(job.max()) + 2
        if table is None or len(table) < needed:
            grown = np.full(2 * needed, -1, dtype=np.int64)
            if table is not None:
                grown[: len(table)] = table
            table = self._slot_of[copy] = grown
        return table[job]

    def _add_slots(self, count: int) -> None:
        before = len(self.lease) - 1
        ints = np.full((before + count + 1, len(_INTS)), -1, dtype=np.int64)
        ints[:before] = self._ints[:before]
        zeros = np.zeros(count)
        self._lay_out(
            ints,
            np.concatenate([self.counted_at, zeros]),
            np.concatenate([self.leaving, zeros.astype(bool)]),
        )
        self._free[:0] = range(before + count - 1, before - 1, -1)
