"""Slices without a decision: all units continue where they are, and measurements are recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairlead.mechanisms.base import Measured
from fairlead.mechanisms.gandiva.memory import KEPT, GandivaMemory
from fairlead.mechanisms.gandiva.packing import unfit_pairs
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.mechanisms.gandiva.unit_arrays import unit_arrays
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot

PASS, _WEIGHT, _ACCELERATOR, BEST, CURRENT, UTILIZATION, _MEMORY, _MOVED_AT = (
    KEPT.index(name)
    for name in (
        *("pass_s", "shared_weight", "accelerator", "best_speed", "current_speed"),
        *("utilization", "memory_gib", "moved_at"),
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """Measurements beyond which Gandiva moves or separates jobs; None where it never does."""

    slow: float | None
    """part of its best speed below which a packed job gets devices of its own"""
    disturbed: float | None
    """part of its best speed below which a job alone moves away from neighbours"""
    fragmented: float
    """free part of a server from which on it is emptied"""
    settle_s: float
    """seconds after such a move before the next"""


def unchanged_units(
    snap: Snapshot, memory: GandivaMemory, servers: Servers
) -> "UnitMembers | None":
    """Return the units of the last plan; None if they may have to change at once.

    The same jobs are there, each in a unit whose home is on one server and that is not on trial.
    """
    if (
        snap.changes != memory.changes
        or snap.holds_lease is not None
        or snap.profiles.min_gang is not None
        or memory.trials[:, 1].any()
        or not memory.homes
        or unit_arrays(memory.units, memory.homes).are_spread
        or not np.array_equal(snap.job, memory.job)
        or not unfit_pairs(snap) <= set(memory.failed)
    ):
        return None
    members = UnitMembers.of(snap, memory, servers)
    return None if len(members.row) < len(snap.job) else members


def quiet_slice(
    members: "UnitMembers", memory: GandivaMemory, limits: Thresholds
) -> GandivaMemory | None:
    """Return the memory after a slice in which all units continue; None if there is more to do.

    It equals the one that Gandiva's own steps would give, at a fraction of their time.
    """
    if (memory.load > members.servers.size).any() or not members.all_run():
        return None
    facts, fresh = measured_facts(members, memory)
    if members.would_change(facts, fresh, limits):
        return None
    members.share_passes(facts)
    members.note_weights(facts)
    return members.memory_after(memory, facts, fresh)


def measured_facts(members: "UnitMembers", memory: GandivaMemory) -> tuple[FloatArray, BoolArray]:
    """Return rows × kept fields with new measurements, and rows → it was measured."""
    snap = members.snap
    facts = memory.facts_of(snap.job, snap.received_s.sum(axis=1))
    return facts, record_measurements(snap, memory, facts, members.packed, members.accelerator)


def record_measurements(
    snap: Snapshot,
    memory: GandivaMemory,
    facts: FloatArray,
    packed: BoolArray,
    accelerator: IntArray,
) -> BoolArray:
    """Enter new measurements into the facts; return rows → it was measured.

    ``packed`` is rows → its unit has other jobs, ``accelerator`` that of its unit's home.
    """
    measured = snap.measured
    if measured is None:
        return np.zeros(len(snap.job), dtype=bool)
    fresh: BoolArray = (measured.lease == snap.lease) & (measured.at > memory.at)
    fresh &= snap.lease >= 0
    facts[fresh, CURRENT] = measured.steps_per_s[fresh]
    alone = fresh & ~packed
    current = facts[:, CURRENT]
    better = alone & ((facts[:, _ACCELERATOR] != accelerator) | ~(facts[:, BEST] >= current))
    facts[better, _ACCELERATOR] = accelerator[better]
    facts[better, BEST] = current[better]
    facts[alone, UTILIZATION] = measured.utilization[alone]
    facts[alone, _MEMORY] = measured.memory_gib[alone]
    return fresh


def record_rows(facts: FloatArray, measured: Measured, accelerator: IntArray) -> IntArray:
    """Enter new measurements of jobs alone; return those rows whose best speed is above 0."""
    row = measured.row
    speed, best = measured.steps_per_s, facts[row, BEST]
    better = (facts[row, _ACCELERATOR] != accelerator[row]) | ~(best >= speed)
    facts[row, CURRENT] = speed
    if better.any():
        improved = row[better]
        facts[improved, _ACCELERATOR] = accelerator[improved]
        facts[improved, BEST] = speed[better]
        best = facts[row, BEST]
    facts[row, UTILIZATION] = measured.utilization
    facts[row, _MEMORY] = measured.memory_gib
    known: IntArray = row[best > 0]
    return known


def has_disturbed_job(facts: FloatArray, at: float, limits: Thresholds) -> bool:
    """Return whether a job that is alone suffers from its neighbours and may move again."""
    if limits.disturbed is None:
        return False
    disturbed = facts[:, CURRENT] < limits.disturbed * facts[:, BEST]
    if not disturbed.any():
        return False
    return bool((disturbed & (at - facts[:, _MOVED_AT] >= limits.settle_s)).any())


@dataclass(frozen=True, slots=True, eq=False)
class UnitMembers:
    """The jobs of all units, with the one server on which each unit has its home."""

    snap: Snapshot
    servers: Servers
    load: IntArray
    """servers → devices that units need there"""
    row: IntArray
    """members → row of the job, the members of a unit one after the other"""
    unit: IntArray
    """members → unit"""
    size: IntArray
    """units → number of its jobs"""
    home: IntArray
    """units → server"""
    need: IntArray
    """units → devices"""
    unit_of: IntArray
    """rows → unit"""
    packed: BoolArray
    """rows → other jobs are in its unit"""
    accelerator: IntArray
    """rows → accelerator of its server"""

    @classmethod
    def of(cls, snap: Snapshot, memory: GandivaMemory, servers: Servers) -> "UnitMembers":
        """Return the units of a memory whose jobs are exactly those of the snapshot."""
        size, job, home, need = unit_arrays(memory.units, memory.homes)
        row = snap.job.searchsorted(job)
        unit = np.arange(len(size)).repeat(size)
        unit_of = np.full(len(snap.job), -1)
        unit_of[row] = unit
        accelerator = servers.accelerator[home[unit_of]]
        packed = size[unit_of] > 1
        load = memory.load
        return cls(snap, servers, load, row, unit, size, home, need, unit_of, packed, accelerator)

    def all_run(self) -> bool:
        """Return whether every job runs on the devices of its unit, at home."""
        snap = self.snap
        if (snap.lease < 0).any():
            return False
        lane, device = (snap.holds >= 0).nonzero()
        unit = self.unit_of[snap.holds[lane, device]]
        if (self.servers.of_device[device] != self.home[unit]).any():
            return False
        jobs_there = used = np.bincount(unit, minlength=len(self.size))
        if len(self.size) < len(snap.job):
            devices = len(self.servers.of_device)
            used = np.bincount(np.unique(unit * devices + device) // devices, minlength=len(used))
        if np.count_nonzero(np.bincount(device)) < used.sum():
            return False  # two units on one device
        return bool(((used == self.need) & (jobs_there == self.need * self.size)).all())

    def would_change(self, facts: FloatArray, fresh: BoolArray, limits: Thresholds) -> bool:
        """Return whether a job would be moved or separated from its partner."""
        if self.has_troubled_job(facts, fresh, limits):
            return True
        if limits.disturbed is not None and self._could_empty_a_server(limits.fragmented):
            return True
        if limits.slow is None or not self.packed.any():
            return False
        speed, best = facts[:, CURRENT], facts[:, BEST]
        last = self.row[self.size.cumsum() - 1]
        slow = fresh[last] & (speed[last] < limits.slow * best[last]) & (self.size > 1)
        most_free = np.zeros(len(self.snap.capacity), dtype=np.int64)
        np.maximum.at(most_free, self.servers.accelerator, self.servers.size - self.load)
        return bool((slow & (most_free[self.accelerator[last]] >= self.need)).any())

    def has_troubled_job(self, facts: FloatArray, fresh: BoolArray, limits: Thresholds) -> bool:
        """Return whether a job makes no steps beside its partners or suffers from neighbours."""
        speed, best = facts[:, CURRENT], facts[:, BEST]
        if (self.packed & fresh & (speed == 0.0) & (best > 0.0)).any():
            return True
        if limits.disturbed is None:
            return False
        disturbed = ~self.packed & (speed < limits.disturbed * best)
        disturbed &= self.snap.starts_at - facts[:, _MOVED_AT] >= limits.settle_s
        return bool(disturbed.any())

    @staticmethod
    def any_slow(facts: FloatArray, part: float) -> bool:
        """Return whether a job was last measured below this part of its best speed."""
        return bool((facts[:, CURRENT] < part * facts[:, BEST]).any())

    def _could_empty_a_server(self, fragmented: float) -> bool:
        """Return whether a mostly free server and one to which its units may move exist."""
        size, accelerator = self.servers.size, self.servers.accelerator
        free, used = size - self.load, self.load > 0
        source = (used & (free >= fragmented * size) & (size > 1)).nonzero()[0]
        if not len(source):
            return False
        alike = accelerator == accelerator[source, None]
        alike &= used & (free > 0) & (free <= free[source, None])
        alike[np.arange(len(source)), source] = False
        return bool(alike.any())

    def memory_after(
        self, memory: GandivaMemory, facts: FloatArray, fresh: BoolArray
    ) -> GandivaMemory:
        """Return the memory after a slice that leaves all units and homes as they are."""
        return GandivaMemory(
            *(self.snap.starts_at, self.snap.changes, memory.job, facts),
            *(memory.units, memory.homes, self._trials(memory, facts, fresh)),
            *(memory.failed, memory.load, memory.changed_at),
        )

    def _trials(self, memory: GandivaMemory, facts: FloatArray, fresh: BoolArray) -> FloatArray:
        """Return units × (total speed, 0, total speed to exceed) as measured now."""
        speed, best = facts[self.row, CURRENT], facts[self.row, BEST]
        known = fresh[self.row] & (best > 0)
        ratio = np.divide(speed, best, out=np.zeros(len(speed)), where=known)
        n = len(self.size)
        whole = np.bincount(self.unit, known, minlength=n) == self.size
        trials = memory.trials.copy()
        trials[whole, 0] = np.bincount(self.unit, ratio, minlength=n)[whole]
        return trials

    def passes(self, facts: FloatArray) -> FloatArray:
        """Return units → the mean pass of its jobs."""
        passes = np.bincount(self.unit, facts[self.row, PASS], minlength=len(self.size))
        return passes / self.size

    def share_passes(self, facts: FloatArray, waits: Iterable[int] = ()) -> None:
        """Set all passes on a server to the latest, except where units wait."""
        latest = np.full(len(self.servers.size), -np.inf)
        np.maximum.at(latest, self.home, self.passes(facts))
        there = self.home[self.unit_of]
        shares = np.ones(len(latest), dtype=bool)
        shares[list(waits)] = False
        facts[:, PASS] = np.where(shares[there], latest[there], facts[:, PASS])

    def note_weights(self, facts: FloatArray) -> None:
        """Note for every job the weight of the unit in which its next time counts."""
        weight = np.bincount(self.unit, self.snap.weight[self.row], minlength=len(self.size))
        facts[:, _WEIGHT] = weight[self.unit_of]
