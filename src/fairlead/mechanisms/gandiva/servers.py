"""Gandiva's servers: what is wanted of each, and Algorithm 1, which gives jobs a home."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fairlead.mechanisms.gandiva.memory import Home, Rank, Unit
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


class Servers:
    """The devices of one accelerator on one node are a server; units have homes on them."""

    def __init__(self, snap: Snapshot) -> None:
        cluster = snap.cluster
        kinds = len(cluster.accelerators)
        key = cluster.node_of * kinds + cluster.accelerator_of
        found, self.of_device = np.unique(key, return_inverse=True)
        self.kind: IntArray = found % kinds
        n = len(found)
        self.size: IntArray = np.bincount(self.of_device[snap.usable], minlength=n)
        """servers → devices that are up"""
        self.load: IntArray = np.zeros(n, dtype=np.int64)
        """servers → devices that units need there: M of the paper"""
        self.extra: IntArray = np.zeros(n, dtype=np.int64)
        """servers → devices that grown jobs hold beyond their need"""
        self.units: list[dict[int, Unit]] = [{} for _ in range(n)]
        """servers → units at home there, by their first job"""
        self.by_devices: list[IntArray] = [
            snap.usable[self.of_device[snap.usable] == s] for s in range(n)
        ]
        self._affinity: IntArray = np.zeros(n, dtype=np.int64)
        self._runs = snap.profiles.speed[snap.profile] > 0
        self._by_rank: dict[Rank, IntArray] = {}
        """rank → servers → devices that its units need there"""
        self._rank_of: dict[int, Rank] = {}

    def runs(self, unit: Unit) -> BoolArray:
        """Return servers → all jobs of the unit may run on its accelerator."""
        rows = [task.row for task in unit.tasks]
        allowed: BoolArray = np.logical_and.reduce(self._runs[rows], axis=0)
        return allowed[self.kind]

    @property
    def overload(self) -> int:
        """Devices that are wanted beyond those there are: 0 unless some height exceeds 1."""
        return int(np.maximum(self.load - self.size, 0).sum())

    # -- homes ----------------------------------------------------------------------------------

    def settle(self, unit: Unit, home: Home) -> None:
        """Let a unit without a home belong here."""
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

    def leave(self, unit: Unit) -> Home:
        """Take a unit's home from it; return what it was."""
        home, unit.home = unit.home, {}
        wanted = self._by_rank[self._rank_of[unit.job]]
        for server, count in home.items():
            self.load[server] -= count
            wanted[server] -= count
            del self.units[server][unit.job]
            first = next(iter(self.units[server].values()), None)
            self._affinity[server] = 0 if first is None else first.need
        return home

    def move(self, unit: Unit, home: Home) -> None:
        """Let a unit belong elsewhere, as far behind or ahead there as it was before."""
        lag = unit.pass_s - self.min_pass(unit.home, but=unit)
        self.leave(unit)
        self.arrive(unit, home, lag)

    def arrive(self, unit: Unit, home: Home, lag: float = 0.0) -> None:
        """Let a unit belong here, its turn as far off as ``lag`` from the next one's."""
        shift = self.min_pass(home) + lag - unit.pass_s
        for task in unit.tasks:
            task.pass_s += shift
        self.settle(unit, home)

    def min_pass(self, home: Iterable[int], but: Unit | None = None) -> float:
        """Return the pass of the unit whose turn is next on these servers, 0 without any."""
        passes = [u.pass_s for server in home for u in self.units[server].values() if u is not but]
        return min(passes, default=0.0)

    # -- Algorithm 1 ----------------------------------------------------------------------------

    def get_nodes(self, unit: Unit) -> Home | None:
        """Return a home for a unit by Algorithm 1; None where it has to wait in the queue.

        Devices that grown jobs could give back are used only where no others are free, and those
        of lower ranks only where none are free at all.
        """
        allowed = self.runs(unit) & (self.size > 0)
        wanted = [self.load + self.extra, self.load]
        if len(self._by_rank) > 1 or unit.rank not in self._by_rank:
            wanted.append(self._load_from(unit.rank))
        for load in wanted:
            found = self._free(unit.need, allowed, self.size - load)
            if found is not None:
                return found
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
                found = choice.nonzero()[0]
                if len(found):
                    return {int(found[free[found].argmax()]): need}
            found = fits.nonzero()[0]
            return {int(found[free[found].argmin()]): need}
        # Lines 9–10: across several servers, as few as possible.
        return self._spread(need, allowed & (free > 0), free, -free)

    def _shared(self, need: int, allowed: BoolArray, ratio: FloatArray) -> Home | None:
        """Return the least loaded server that is large enough, or several together."""
        found = (allowed & (self.size >= need)).nonzero()[0]
        if len(found):
            return {int(found[ratio[found].argmin()]): need}
        return self._spread(need, allowed, self.size, ratio)

    def _spread(
        self, need: int, allowed: BoolArray, room: IntArray, order: FloatArray | IntArray
    ) -> Home | None:
        """Return servers of one accelerator that have room together, taken in this order."""
        best: Home | None = None
        for kind in np.unique(self.kind[allowed]).tolist():
            found = (allowed & (self.kind == kind)).nonzero()[0]
            if int(room[found].sum()) < need:
                continue
            home: Home = {}
            left = need
            for server in found[order[found].argsort(kind="stable")].tolist():
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

    def blocked(self) -> list[Unit]:
        """Return the units in whose homes those of higher rank leave no room."""
        if len(self._by_rank) < 2:
            return []
        found: list[Unit] = []
        above = np.zeros_like(self.load)
        units = list(self.all_units())
        for rank in sorted(self._by_rank, reverse=True):
            mine = [unit for unit in units if self._rank_of[unit.job] == rank]
            found += [
                unit
                for unit in mine
                if any(above[s] + count > self.size[s] for s, count in unit.home.items())
            ]
            above = above + self._by_rank[rank]
        return found

    def all_units(self) -> Iterator[Unit]:
        """Return the units that have homes, each once."""
        seen: set[int] = set()
        for units in self.units:
            for job, unit in units.items():
                if job not in seen:
                    seen.add(job)
                    yield unit


def home_of(servers: Servers, unit: Unit, devices: Sequence[int]) -> Home:
    """Return the home of a unit that holds these devices."""
    found, counts = np.unique(servers.of_device[list(devices)], return_counts=True)
    if len(found) == 1:
        return {int(found[0]): unit.need}
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
