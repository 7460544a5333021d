"""Which job holds which devices, under which lease."""

import numpy as np

from fairlead.model.arrays import NO_INTS, BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.plan import Assignments

MIXED = -1
"""the accelerator of a lease whose devices are not all alike"""


class LeaseTable:
    """Columns over slots; a slot holds one open lease and is used again after its end.

    Packed jobs share devices, each in a lane of its own: ``holder[lane, device]`` is the slot
    that holds the device in that lane, -1 when none does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._accelerator_of = cluster.accelerator_of
        devices = len(self._accelerator_of)
        self.holder = np.full((1, devices), -1, dtype=np.int64)
        self.lease = np.full(devices, -1, dtype=np.int64)
        self.job = np.zeros(devices, dtype=np.int64)
        self.copy = np.zeros(devices, dtype=np.int64)
        self.lane = np.zeros(devices, dtype=np.int64)
        self.held = np.zeros(devices, dtype=np.int64)
        self.accelerator = np.zeros(devices, dtype=np.int64)
        self.counted_at = np.zeros(devices)
        """until when the time held has been credited to the job"""
        self.leaving = np.zeros(devices, dtype=bool)
        """told to give up its devices; cannot be renewed any more"""
        self._slot_of_lease: dict[int, int] = {}
        self._slot_of_job = np.full((1, 64), -1, dtype=np.int64)
        self._free = list(range(devices - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._slot_of_lease)

    @property
    def open(self) -> IntArray:
        """The slots in use."""
        return np.flatnonzero(self.lease >= 0)

    def slots(self, leases: IntArray) -> IntArray:
        """Return the slots of these leases; refuse one that is not open."""
        known = self._slot_of_lease
        try:
            return np.array([known[lease] for lease in leases.tolist()], dtype=np.int64)
        except KeyError as missing:
            raise ProtocolError(f"lease {missing.args[0]} is not open") from None

    def slot_of(self, job: IntArray, copy: IntArray | int = 0) -> IntArray:
        """Return the slot that each job (and copy) holds, -1 where it holds none."""
        job, copy = np.broadcast_arrays(job, copy)
        self._widen(job, copy)
        return np.where(job >= 0, self._slot_of_job[copy, job], -1)

    def match(self, units: Assignments) -> IntArray:
        """Return units × width: the slot that holds exactly the planned devices, else -1."""
        slot = self.slot_of(units.members, units.copy[:, None])
        if not len(units):
            return slot
        size = units.size
        for column in range(slot.shape[1]):
            s = slot[:, column]
            each = np.repeat(s, size)
            same = self.holder[self.lane[each], units.device] == each
            exact = np.logical_and.reduceat(same, units.start[:-1]) & (self.held[s] == size)
            slot[:, column] = np.where(exact & (s >= 0) & ~self.leaving[s], s, -1)
        return slot

    def free_devices(self) -> BoolArray:
        """devices → nobody holds it."""
        free: BoolArray = (self.holder < 0).all(axis=0)
        return free

    def blocked(self) -> BoolArray:
        """devices → somebody who was told to leave still holds it."""
        blocked: BoolArray = ((self.holder >= 0) & self.leaving[self.holder]).any(axis=0)
        return blocked

    def open_units(self, units: Assignments, first_lease: int, at: float) -> IntArray:
        """Open a lease for every member of the units; return units × width lease numbers."""
        self._widen(units.members, units.copy)
        present = units.members >= 0
        lease = np.full(units.members.shape, -1, dtype=np.int64)
        lease[present] = first_lease + np.arange(np.count_nonzero(present))
        size, width = units.size, units.members.shape[1]
        first = units.device[units.start[:-1]]
        kind = self._accelerator_of[units.device]
        alike = np.logical_and.reduceat(kind == np.repeat(kind[units.start[:-1]], size), units.start[:-1])
        accelerator = np.where(alike, self._accelerator_of[first], MIXED)
        while self.holder.shape[0] < width:
            self._add_lane()
        for column in range(width):
            here = present[:, column]
            slot = np.full(len(units), -1, dtype=np.int64)
            slot[here] = self._take(int(np.count_nonzero(here)))
            lane = self._free_lane(units) if width > 1 else np.zeros(len(units), dtype=np.int64)
            s = slot[here]
            self.lease[s] = lease[here, column]
            self.job[s] = units.members[here, column]
            self.copy[s] = units.copy[here]
            self.lane[s] = lane[here]
            self.held[s] = size[here]
            self.accelerator[s] = accelerator[here]
            self.counted_at[s] = at
            self.leaving[s] = False
            self._slot_of_job[self.copy[s], self.job[s]] = s
            self._slot_of_lease.update(zip(lease[here, column].tolist(), s.tolist(), strict=True))
            mine = np.repeat(here, size)
            self.holder[np.repeat(lane, size)[mine], units.device[mine]] = np.repeat(slot, size)[mine]
        return lease

    def close(self, slots: IntArray) -> None:
        """End these leases; their devices are free for the next unit."""
        for lease in self.lease[slots].tolist():
            del self._slot_of_lease[lease]
        self._slot_of_job[self.copy[slots], self.job[slots]] = -1
        self.lease[slots] = -1
        gone = np.zeros(len(self.lease), dtype=bool)
        gone[slots] = True
        self.holder[gone[self.holder] & (self.holder >= 0)] = -1
        self._free.extend(slots.tolist())

    def on_devices(self, devices: BoolArray) -> IntArray:
        """Return the slots that hold any of these devices."""
        held = self.holder[:, devices]
        return np.unique(held[held >= 0])

    def units(self, slots: IntArray) -> Assignments:
        """Return what these slots hold, packed jobs of one unit together."""
        if not len(slots):
            return Assignments(
                np.zeros((0, 1), dtype=np.int64), NO_INTS, np.zeros(1, dtype=np.int64), NO_INTS
            )
        chosen = np.zeros(len(self.lease) + 1, dtype=bool)
        chosen[slots] = True
        held = np.where(chosen[self.holder], self.holder, -1)
        return _as_units(held, self.job, self.copy)

    def _free_lane(self, units: Assignments) -> IntArray:
        taken = self.holder >= 0
        lanes = np.zeros(len(units), dtype=np.int64)
        for u in range(len(units)):
            devices = units.device[units.start[u] : units.start[u + 1]]
            open_lanes = np.flatnonzero(~taken[:, devices].any(axis=1))
            if not len(open_lanes):
                self._add_lane()
                taken = self.holder >= 0
                open_lanes = np.array([len(taken) - 1])
            lanes[u] = open_lanes[0]
        return lanes

    def _add_lane(self) -> None:
        self.holder = np.vstack([self.holder, np.full((1, self.holder.shape[1]), -1)])

    def _take(self, count: int) -> IntArray:
        if len(self._free) < count:
            self._add_slots()
        return np.array([self._free.pop() for _ in range(count)], dtype=np.int64)

    def _add_slots(self) -> None:
        before = len(self.lease)
        for name in ("job", "copy", "lane", "held", "accelerator", "counted_at", "leaving"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self.lease = np.concatenate([self.lease, np.full(before, -1)])
        self._free[:0] = range(2 * before - 1, before - 1, -1)

    def _widen(self, job: IntArray, copy: IntArray) -> None:
        old = self._slot_of_job
        copies, jobs = int(copy.max(initial=0)) + 1, int(job.max(initial=0)) + 1
        if copies <= old.shape[0] and jobs <= old.shape[1]:
            return
        shape = (max(copies, old.shape[0]), max(2 * jobs, old.shape[1]))
        self._slot_of_job = np.full(shape, -1, dtype=np.int64)
        self._slot_of_job[: old.shape[0], : old.shape[1]] = old


def _as_units(held: IntArray, job: IntArray, copy: IntArray) -> Assignments:
    devices = np.flatnonzero((held >= 0).any(axis=0))
    first = held[:, devices].max(axis=0) if len(held) > 1 else held[0, devices]
    order = np.argsort(first, kind="stable")
    devices, first = devices[order], first[order]
    starts = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]]))
    start = np.append(starts, len(devices))
    slots = held[:, devices[starts]].T
    members = np.where(slots >= 0, job[slots], -1)
    if members.shape[1] > 1:
        members = -np.sort(-members, axis=1)
    return Assignments(members, copy[first[starts]], start, devices)
