"""Slices in which jobs of one device came or left: homes change, then units take turns."""

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.packing import unfit_pairs
from fairlead.mechanisms.gandiva.quiet_slices import (
    PASS,
    UTILIZATION,
    Thresholds,
    UnitMembers,
    record_measurements,
)
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.mechanisms.gandiva.turn_slices import have_one_rank, single_turns, turn_order
from fairlead.mechanisms.gandiva.unit_arrays import UnitArrays, keep_arrays, unit_arrays
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot


def changed_slice(
    snap: Snapshot, memory: GandivaMemory, servers: Servers, limits: Thresholds, until: float
) -> tuple[Plan, GandivaMemory] | None:
    """Return the plan of a slice of single devices without packing; None if there is more to do.

    It equals the one that Gandiva's own steps would give, at a fraction of their time.
    """
    if not _has_single_devices_only(snap, memory, servers):
        return None
    facts = memory.facts_of(snap.job, snap.received_s.sum(axis=1))
    homes = _Homes(snap, memory, servers, facts)
    if (servers.size[homes.of_row[homes.of_row >= 0]] < 1).any():
        return None
    homes.join_where_they_run()
    accelerator = servers.accelerator[homes.of_row]
    apart = np.zeros(len(snap.job), dtype=bool)
    fresh = record_measurements(snap, memory, facts, apart, accelerator)
    if _needs_more(facts, limits) or not homes.place_new():
        return None
    if limits.disturbed is not None:
        if snap.changes != memory.changes:
            homes.move_to_vacated()
        if homes.may_fragment(limits.fragmented):
            return None
    members = homes.members()
    stop, start, waits = single_turns(members, turn_order(members, facts))
    members.share_passes(facts, waits)
    members.note_weights(facts)
    after = _memory_after(members, memory, facts, fresh)
    return Plan(stop, start, until, until), after


def _has_single_devices_only(snap: Snapshot, memory: GandivaMemory, servers: Servers) -> bool:
    """Return whether every job has, and had, one device of its own and the same rank."""
    return (
        len(snap.job) > 0
        and len(memory.load) == len(servers.size)
        and len(snap.holds) == 1
        and snap.holds_lease is None
        and snap.profiles.min_gang is None
        and not memory.failed
        and not memory.trials[:, 1].any()
        and not memory.has_grown_jobs
        and len(memory.units) > 0
        and unit_arrays(memory.units, memory.homes).are_single
        and int(snap.profiles.gang[snap.profile].max()) == 1
        and memory.load.sum() == len(memory.units)
        and have_one_rank(snap)
        and bool((snap.lease[snap.holds[snap.holds >= 0]] >= 0).all())
        and bool((np.bincount(snap.holds[snap.holds >= 0], minlength=1) <= 1).all())
        and not unfit_pairs(snap)
    )


def _needs_more(facts: FloatArray, limits: Thresholds) -> bool:
    """Return whether a job could be packed or moved by its measurements."""
    if limits.slow is not None and not np.isnan(facts[:, UTILIZATION]).all():
        return True
    return limits.disturbed is not None and UnitMembers.any_slow(facts, limits.disturbed)


class _Homes:
    """The servers of jobs of one device while a plan is made; units are single jobs."""

    def __init__(
        self, snap: Snapshot, memory: GandivaMemory, servers: Servers, facts: FloatArray
    ) -> None:
        self._snap, self._servers, self._facts = snap, servers, facts
        n = len(snap.job)
        _, job, home, _ = unit_arrays(memory.units, memory.homes)
        row = np.minimum(snap.job.searchsorted(job), n - 1)
        there = snap.job[row] == job
        self.of_row: IntArray = np.full(n, -1)
        """rows → server; -1 for none"""
        self.of_row[row[there]] = home[there]
        self._place = np.full(n, -1)
        """rows → order in which units of a server came there"""
        self._place[row[there]] = there.nonzero()[0]
        self._next_place = len(job)
        self._load: IntArray = np.bincount(home[there], minlength=len(servers.size))

    def join_where_they_run(self) -> None:
        """Assign homes to jobs that were started since the last plan: where they are."""
        holder = self._snap.holds[0]
        for device in ((holder >= 0) & (self.of_row[holder] < 0)).nonzero()[0].tolist():
            self._join(int(holder[device]), int(self._servers.of_device[device]))

    def place_new(self) -> bool:
        """Assign homes to all others by Algorithm 1; return whether each has one."""
        size = self._servers.size
        for row in (self.of_row < 0).nonzero()[0].tolist():
            allowed = self._allowed(row) & (size > 0)
            free = size - self._load
            fits = allowed & (free >= 1)
            choices = fits & (self._load > 0), fits & (self._load == 0)
            server = next((_first(choice, -free) for choice in choices if choice.any()), None)
            if server is None:
                ratio = self._load / np.maximum(size, 1)
                shared = allowed & (self._load > 0), allowed
                server = next((_first(choice, ratio) for choice in shared if choice.any()), None)
            if server is None:
                return False
            self._join(row, server)
        return True

    def move_to_vacated(self) -> None:
        """Move units from the most loaded servers to others, as ``migration`` does."""
        size = self._servers.size
        stuck = np.zeros(len(size), dtype=bool)
        at_least_one = np.maximum(size, 1)
        while True:
            over = (self._load > size) & (size > 0) & ~stuck
            if not over.any():
                return
            source = int(np.where(over, self._load / at_least_one, -1.0).argmax())
            if not self._move_one(source, at_least_one):
                stuck[source] = True

    def _move_one(self, source: int, at_least_one: IntArray) -> bool:
        snap, size = self._snap, self._servers.size
        before = self._load[source] / size[source]
        after = (self._load + 1) / at_least_one
        lower = (size >= 1) & (after < before - 1e-9)
        lower[source] = False
        if not lower.any():
            return False
        there = (self.of_row == source).nonzero()[0]
        order = np.lexsort((snap.job[there], self._facts[there, PASS], snap.lease[there] >= 0))
        tried: set[int] = set()
        for row in there[order].tolist():
            profile = int(snap.profile[row])
            if profile in tried:
                continue
            tried.add(profile)
            good = lower & self._allowed(row)
            if good.any():
                lag = float(self._facts[row, PASS]) - self._least_pass(source, but=row)
                self._load[source] -= 1
                self.of_row[row] = -1
                self._join(row, int(np.where(good, after, np.inf).argmin()), lag)
                return True
        return False

    def may_fragment(self, part: float) -> bool:
        """Return whether a server is free enough for its jobs to be moved elsewhere."""
        size, load = self._servers.size, self._load
        mostly = (load > 0) & (size - load >= part * size) & (size > 1)
        return not (load > size).any() and bool(mostly.any())

    def members(self) -> UnitMembers:
        """Return the units, server by server."""
        n = len(self._snap.job)
        row = np.lexsort((self._place, self.of_row))
        unit, one = np.arange(n), np.ones(n, dtype=np.int64)
        unit_of = np.empty(n, dtype=np.int64)
        unit_of[row] = unit
        return UnitMembers(
            *(self._snap, self._servers, self._load, row, unit, one, self.of_row[row], one),
            *(unit_of, np.zeros(n, dtype=bool), self._servers.accelerator[self.of_row]),
        )

    def _allowed(self, row: int) -> BoolArray:
        """Return servers → the job may run on its accelerator."""
        runs = self._snap.profiles.speed[self._snap.profile[row]] > 0
        allowed: BoolArray = runs[self._servers.accelerator]
        return allowed

    def _join(self, row: int, server: int, lag: float = 0.0) -> None:
        """Assign a home; the job's turn comes ``lag`` after the next one's."""
        passed = float(self._facts[row, PASS])
        self._facts[row, PASS] = passed + (self._least_pass(server) + lag - passed)
        self.of_row[row] = server
        self._load[server] += 1
        self._place[row] = self._next_place
        self._next_place += 1

    def _least_pass(self, server: int, but: int = -1) -> float:
        """Return the pass of the job whose turn is next on a server, 0 without any."""
        there = self.of_row == server
        if but >= 0:
            there[but] = False
        passes = self._facts[there, PASS]
        return float(passes.min()) if len(passes) else 0.0


def _first(servers: BoolArray, key: FloatArray | IntArray) -> int:
    """Return the first of these servers with the least key."""
    chosen = servers.nonzero()[0]
    return int(chosen[key[chosen].argmin()])


def _memory_after(
    members: UnitMembers, memory: GandivaMemory, facts: FloatArray, fresh: BoolArray
) -> GandivaMemory:
    """Return the memory after a slice in which homes have changed."""
    snap, load = members.snap, members.load
    job = snap.job[members.row]
    _, known, _, _ = unit_arrays(memory.units, memory.homes)
    by_job = known.argsort()
    place = by_job[np.minimum(known.searchsorted(job, sorter=by_job), len(known) - 1)]
    there = known[place] == job
    trials = np.empty((len(job), len(_NO_TRIAL)))
    trials[:] = _NO_TRIAL
    trials[there] = memory.trials[place[there]]
    units = tuple([(number,) for number in job.tolist()])
    homes = tuple([((server, 1),) for server in members.home.tolist()])
    one = np.ones_like(job)
    keep_arrays(units, homes, UnitArrays(one, job, members.home, one))
    changed_at = np.where(load == memory.load, memory.changed_at, snap.starts_at)
    kept = GandivaMemory(
        *(snap.starts_at, snap.changes, snap.job, facts, units, homes, trials, ()),
        *(load, changed_at),
    )
    return members.memory_after(kept, facts, fresh)


_NO_TRIAL = [np.nan, 0.0, 0.0]
"""total speed, jobs on trial and total speed to exceed, of a job without a partner"""
