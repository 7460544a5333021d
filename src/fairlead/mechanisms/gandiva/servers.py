"""Gandiva's servers, their load, and Algorithm 1, which assigns homes to jobs."""

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import cached_property

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaUnit, Home, Rank
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


class Servers:
    """The devices of one accelerator on one node are a server; units have homes on them."""

    def __init__(self, snap: Snapshot) -> None:
        self._snap = snap
        self.of_device, self.accelerator = snap.cluster.servers
        n = len(self.accelerator)
        self.size: IntArray = np.bincount(self.of_device[snap.usable], minlength=n)
        """servers → devices that are up"""
        self.usable = snap.usable
        """these devices, ascending"""
        self.load: IntArray = np.zeros(n, dtype=np.int64)
        """servers → devices that units need there: M of the paper"""
        self.extra: IntArray = np.zeros(n, dtype=np.int64)
        """servers → devices that grown jobs hold beyond their need"""
        self.units: list[dict[int, GandivaUnit]] = [{} for _ in range(n)]
        """servers → units with a home there, by their first job"""
        self._affinity: IntArray = np.zeros(n, dtype=np.int64)
        self._allowed: dict[int, BoolArray] = {}
        """accelerators as bits → servers of these"""
        self._by_rank: dict[Rank, IntArray] = {}
        """rank → servers → devices that its units need there"""
        self._rank_of: dict[int, Rank] = {}

    @cached_property
    def server_of(self) -> list[int]:
        """devices → server."""
        servers: list[int] = self.of_device.tolist()
        return servers

    @cached_property
    def _runs(self) -> list[int]:
        """rows → accelerators that the job may use, as bits."""
        runs = self._snap.profiles.speed > 0
        bits: list[int] = (runs @ (1 << np.arange(runs.shape[1])))[self._snap.profile].tolist()
        return bits

    def accelerators(self, unit: GandivaUnit) -> int:
        """Return the accelerators that all jobs of the unit may use, as bits."""
        bits = -1
        for task in unit.tasks:
            bits &= self._runs[task.row]
        return bits

    def runs(self, unit: GandivaUnit) -> BoolArray:
        """Return servers → all jobs of the unit may run on its accelerator."""
        bits = self.accelerators(unit)
        if bits not in self._allowed:
            self._allowed[bits] = (bits >> self.accelerator) % 2 == 1
        return self._allowed[bits]

    @property
    def overload(self) -> int:
        """Devices that are wanted beyond those there are: 0 unless some height exceeds 1."""
        return int(np.maximum(self.load - self.size, 0).sum())

    def free_devices(self, servers: Iterable[int], used: Set[int]) -> dict[int, set[int]]:
        """Return server → usable devices of it that are not used, for these servers."""
        at = self.of_device[self.usable]
        return {s: set(self.usable[at == s].tolist()) - used for s in servers}

    # -- homes ----------------------------------------------------------------------------------

    def assign_home(self, unit: GandivaUnit, home: Home) -> None:
        """Assign a home to a unit without one."""
        unit.home = home
        rank = self._rank_of[unit.job] = unit.rank
        if rank not in self._by_rank:
            self._by_rank[rank] = np.zeros_like(self.load)
        wanted = self._by_rank[rank]
        for server, count in home.items():
            self.load[server] += count
            wanted[server] += count
            if not self.units[server]:
                self._affinity[server] = unit.need
            self.units[server][unit.job] = unit

    def restore_homes(self, units: Iterable[GandivaUnit]) -> None:
        """Enter the homes of all units of the last plan; no other unit has a home yet."""
        n = len(self.size)
        load, affinity = [0] * n, [0] * n
        by_rank: dict[Rank, list[int]] = {}
        for unit in units:
            first, rank = unit.tasks[0], unit.rank
            self._rank_of[first.job] = rank
            wanted = by_rank.get(rank)
            if wanted is None:
                wanted = by_rank[rank] = [0] * n
            for server, count in unit.home.items():
                load[server] += count
                wanted[server] += count
                there = self.units[server]
                if not there:
                    affinity[server] = first.floor
                there[first.job] = unit
        self.load, self._affinity = np.array(load), np.array(affinity)
        self._by_rank = {rank: np.array(wanted) for rank, wanted in by_rank.items()}

    def remove_home(self, unit: GandivaUnit) -> Home:
        """Remove a unit's home and return it."""
        home, unit.home = unit.home, {}
        wanted = self._by_rank[self._rank_of[unit.job]]
        for server, count in home.items():
            self.load[server] -= count
            wanted[server] -= count
            del self.units[server][unit.job]
            first = next(iter(self.units[server].values()), None)
            self._affinity[server] = 0 if first is None else first.need
        return home

    def move(self, unit: GandivaUnit, home: Home) -> None:
        """Move a unit to another home; it keeps its distance from the next turn."""
        lag = unit.pass_s - self.min_pass(unit.home, but=unit)
        self.remove_home(unit)
        self.join_home(unit, home, lag)

    def join_home(self, unit: GandivaUnit, home: Home, lag: float = 0.0) -> None:
        """Assign a home; the unit's turn comes ``lag`` after the next one's."""
        shift = self.min_pass(home) + lag - unit.pass_s
        for task in unit.tasks:
            task.pass_s += shift
        self.assign_home(unit, home)

    def min_pass(self, home: Iterable[int], but: GandivaUnit | None = None) -> float:
        """Return the pass of the unit whose turn is next on these servers, 0 without any."""
        passes = [u.pass_s for server in home for u in self.units[server].values() if u is not but]
        return min(passes, default=0.0)

    # -- Algorithm 1 ----------------------------------------------------------------------------

    def get_nodes(self, unit: GandivaUnit) -> Home | None:
        """Return a home for a unit by Algorithm 1; None where it has to wait in the queue.

        Devices that grown jobs could give back are used only where no others are free, and those
        of lower ranks only where none are free at all.
        """
        allowed = self.runs(unit) & (self.size > 0)
        wanted = [self.load + self.extra, self.load]
        if len(self._by_rank) > 1 or unit.rank not in self._by_rank:
            wanted.append(self._load_from(unit.rank))
        for load in wanted:
            home = self._free(unit.need, allowed, self.size - load)
            if home is not None:
                return home
        # Lines 11–12, over-subscription; without a server of the same affinity the paper queues
        # the job, which could last for ever, so any server will do.
        ratio = wanted[-1] / np.maximum(self.size, 1)
        same = allowed & (self._affinity == unit.need)
        return self._shared(unit.need, same, ratio) or self._shared(unit.need, allowed, ratio)

    def _free(self, need: int, allowed: BoolArray, free: IntArray) -> Home | None:
        """Return a home on free devices (lines 1–10), None where there are too few."""
        fits = allowed & (free >= need)
        if fits.any():
            # Lines 5–6. Height ⌈M/N⌉ < 1 would be an empty server; meant is M + gang ≤ N.
            for choice in (fits & (self._affinity == need), fits & (self.load == 0)):
                servers = choice.nonzero()[0]
                if len(servers):
                    return {int(servers[free[servers].argmax()]): need}
            servers = fits.nonzero()[0]
            return {int(servers[free[servers].argmin()]): need}
        # Lines 9–10: across several servers, as few as possible.
        return self._spread(need, allowed & (free > 0), free, -free)

    def _shared(self, need: int, allowed: BoolArray, ratio: FloatArray) -> Home | None:
        """Return the least loaded server that is large enough, or several together."""
        servers = (allowed & (self.size >= need)).nonzero()[0]
        if len(servers):
            return {int(servers[ratio[servers].argmin()]): need}
        return self._spread(need, allowed, self.size, ratio)

    def _spread(
        self, need: int, allowed: BoolArray, room: IntArray, order: FloatArray | IntArray
    ) -> Home | None:
        """Return servers of one accelerator that have room together, used in this order."""
        best: Home | None = None
        for accelerator in np.unique(self.accelerator[allowed]).tolist():
            servers = (allowed & (self.accelerator == accelerator)).nonzero()[0]
            if int(room[servers].sum()) < need:
                continue
            home: Home = {}
            left = need
            for server in servers[order[servers].argsort(kind="stable")].tolist():
                count = min(left, int(room[server]))
                if count:
                    home[server] = count
                left -= count
                if not left:
                    break
            if best is None or len(home) < len(best):
                best = home
        return best

    def _load_from(self, rank: Rank) -> IntArray:
        """Return servers → devices wanted by units of this rank or above."""
        load = np.zeros_like(self.load)
        for other, wanted in self._by_rank.items():
            if other >= rank:
                load += wanted
        return load

    def blocked(self) -> list[GandivaUnit]:
        """Return the units in whose homes those of higher rank leave no room."""
        if len(self._by_rank) < 2:
            return []
        blocked: list[GandivaUnit] = []
        above = np.zeros_like(self.load)
        units = list(self.all_units())
        for rank in sorted(self._by_rank, reverse=True):
            of_rank = [unit for unit in units if self._rank_of[unit.job] == rank]
            blocked += [
                unit
                for unit in of_rank
                if any(above[s] + count > self.size[s] for s, count in unit.home.items())
            ]
            above = above + self._by_rank[rank]
        return blocked

    def all_units(self) -> Iterator[GandivaUnit]:
        """Return the units that have homes, each once."""
        seen: set[int] = set()
        for units in self.units:
            for job, unit in units.items():
                if job not in seen:
                    seen.add(job)
                    yield unit


def home_of(servers: Servers, unit: GandivaUnit, devices: Sequence[int]) -> Home:
    """Return the home of a unit that holds these devices."""
    servers_held, counts = np.unique(servers.of_device[list(devices)], return_counts=True)
    if len(servers_held) == 1:
        return {int(servers_held[0]): unit.need}
    return dict(zip(servers_held.tolist(), counts.tolist(), strict=True))


def has_room(room: Sequence[int], home: Collection[tuple[int, int]]) -> bool:
    """Return whether each server has room for as many devices as a home has there."""
    if len(home) == 1:
        ((server, count),) = home
        return room[server] >= count
    return all(room[server] >= count for server, count in home)
