"""HadarE: jobs forked into copies that train on several nodes at once (§V)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fairlead.mechanisms.hadar.auction import Auction, HadarOptions
from fairlead.mechanisms.hadar.bids import held_devices, undisturbed_holders
from fairlead.mechanisms.hadar.devices import Devices
from fairlead.mechanisms.hadar.forking import fork
from fairlead.model.arrays import NO_INTS, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.lease import NO_PLACEMENTS, Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Tracker:
    """The job tracker (§V-A): the copies that run, and the jobs that should end."""

    copies: Placements
    """the copies of forked jobs in the last round"""
    ending: IntArray
    """jobs whose parts were to be done within that round"""
    sold_at: float
    """time at which all devices were last sold again"""
    changes: int
    """the snapshot's count of changes then"""


@dataclass(frozen=True)
class HadarE(HadarOptions):
    """Run Hadar's jobs, and copies of them on the nodes that these leave idle.

    A round's first copies are Hadar's plan. Then every idle node gets a copy of the job to which
    it is worth most, or one for each of its accelerators, each job as many as there are. The steps
    left are divided among a job's copies by speed. When the round ends all copies of a job stop,
    their steps are added up and what they have learnt is merged, from which the next round's
    copies start. A job with one copy continues undisturbed. Steps left over from a round that was
    to be a job's last are made on those of its nodes that were done first.
    """

    copies: int = 0
    """greatest number of copies of a job; 0: one for each accelerator of each node"""
    declared: bool = False
    """fork only jobs that declare ``max_copies``, as live servers do"""

    def __post_init__(self) -> None:
        HadarOptions.__post_init__(self)
        if self.copies < 0:
            raise UsageError("copies must be 0 or more")

    @property
    def capabilities(self) -> Capabilities:
        """Those of Hadar, and copies of jobs."""
        return replace(super().capabilities, forks=True)

    def forking_declared_jobs(self) -> "HadarE":
        """Return this mechanism for real devices: a job must be made for being forked."""
        return replace(self, declared=True)

    def initial(self) -> Tracker:
        """Return a tracker of nothing."""
        return Tracker(NO_PLACEMENTS, NO_INTS, -math.inf, -1)

    def plan(self, snap: Snapshot, memory: Tracker) -> tuple[Plan, Tracker]:
        """Return the round's first and further copies, and where these are."""
        stale = memory.changes != snap.changes or (
            snap.starts_at - memory.sold_at >= self.reconsider_s
        )
        until = snap.starts_at + self.round_s
        if not stale and not len(memory.copies) and _no_device_is_idle(snap):
            return Plan(NO_INTS, NO_PLACEMENTS, until, until, stale), memory
        whole = held_devices(snap, set(snap.usable.tolist()))
        plain = {row: devices for row, devices in whole.items() if snap.lease[row] >= 0}
        pinned = self._last_rounds(snap, memory, whole)
        auction = self._auction(snap, plain, pinned)
        first = auction.decide(again=stale)
        most = self.copies or _count_cells(snap)
        running = fork(snap, auction, first, self._most_copies(snap, auction, first, most))
        running |= pinned
        stop, start, copies = _difference(snap, auction, running, plain)
        tracker = Tracker(
            copies,
            self._ending(snap, auction, running),
            snap.starts_at if stale else memory.sold_at,
            snap.changes,
        )
        return Plan(stop, start, until, until, stale), tracker

    def _most_copies(
        self, snap: Snapshot, auction: Auction, first: Mapping[int, Devices], most: int
    ) -> dict[int, int]:
        """Return job → its greatest number of copies.

        A job that declares it keeps to that, and is not forked for less work than a restart.
        """
        declared = snap.profiles.max_copies
        if declared is None:
            return dict.fromkeys(first, 1 if self.declared else most)
        limits, left = declared[snap.profile].tolist(), snap.steps_left.tolist()
        copies = {}
        for row, devices in first.items():
            speed = auction.speed(row, devices)
            is_short = left[row] <= self.restart_s * speed
            own = 1 if is_short else min(limits[row], most)
            undeclared = 1 if self.declared else most
            copies[row] = own if limits[row] else undeclared
        return copies

    def _auction(
        self, snap: Snapshot, plain: Mapping[int, Devices], pinned: Mapping[int, list[Devices]]
    ) -> Auction:
        """Return an auction of all devices and jobs that are not pinned."""
        taken = {device for copies in pinned.values() for one in copies for device in one}
        held = {
            row: devices
            for row, devices in plain.items()
            if row not in pinned and taken.isdisjoint(devices)
        }
        return Auction(
            self,
            snap,
            devices=[device for device in snap.usable.tolist() if device not in taken],
            held=held,
            rows=[row for row in range(len(snap.job)) if row not in pinned] if pinned else None,
        )

    def _last_rounds(
        self, snap: Snapshot, memory: Tracker, held: Mapping[int, Devices]
    ) -> dict[int, list[Devices]]:
        """Return job → copies, of jobs that should have ended and some of whose nodes are done.

        As many of these nodes are used as the steps left need within a round.
        """
        late: dict[int, list[Devices]] = {}
        ending = set(memory.ending.tolist())
        up = set(snap.usable.tolist())
        row_of = {job: row for row, job in enumerate(snap.job.tolist())}
        for copy in memory.copies:
            row = row_of.get(copy.job)
            if row is None or copy.job not in ending or not up.issuperset(copy.devices):
                continue
            if not set(copy.devices).intersection(held.get(row, ())):
                late.setdefault(row, []).append(copy.devices)
        return {row: self._nodes_for_steps_left(snap, row, done) for row, done in late.items()}

    def _nodes_for_steps_left(
        self, snap: Snapshot, row: int, done: list[Devices]
    ) -> list[Devices]:
        speed = snap.profiles.speed[snap.profile[row]][snap.cluster.accelerator_of]
        done = sorted(done, key=lambda devices: (-float(speed[devices[0]]), devices))
        left = float(snap.steps_left[row])
        for count in range(1, len(done)):
            if left <= self.round_s * sum(float(speed[d[0]]) for d in done[:count]):
                return done[:count]
        return done

    def _ending(
        self, snap: Snapshot, auction: Auction, running: Mapping[int, list[Devices]]
    ) -> IntArray:
        """Return the forked jobs whose steps left should be made within the round."""
        ending, left = [], snap.steps_left.tolist()
        for row, copies in running.items():
            if len(copies) == 1:
                continue
            speed = sum([auction.speed(row, devices) for devices in copies])
            if left[row] <= speed * self.round_s * (1.0 + 1e-9):
                ending.append(int(snap.job[row]))
        return np.array(sorted(ending), dtype=np.int64)


def _no_device_is_idle(snap: Snapshot) -> bool:
    """Return whether jobs that may continue hold all devices."""
    holders = undisturbed_holders(snap)
    return holders is not None and len(holders) == len(snap.usable)


def _count_cells(snap: Snapshot) -> int:
    """Return the number of accelerators with devices that are up, added up over nodes."""
    cluster, up = snap.cluster, snap.usable
    cells = zip(cluster.accelerator_of[up].tolist(), cluster.node_of[up].tolist(), strict=True)
    return len(set(cells))


def _difference(
    snap: Snapshot,
    auction: Auction,
    running: Mapping[int, list[Devices]],
    plain: Mapping[int, Devices],
) -> tuple[IntArray, Placements, Placements]:
    """Return the leases to stop, what starts, and the copies of forked jobs among that.

    Copies are numbered from 1 on (§V-A); a job that is not forked is its own copy 0.
    """
    keep: set[int] = set()
    whole: list[Placement] = []
    parts: list[Placement] = []
    jobs, leases, steps_left = snap.job.tolist(), snap.lease.tolist(), snap.steps_left.tolist()
    for row in sorted(running):
        job, copies = jobs[row], running[row]
        if len(copies) > 1:
            speed = [auction.speed(row, devices) for devices in copies]
            left, total = steps_left[row], sum(speed)
            for i, devices in enumerate(copies):
                parts.append(Placement(job, i + 1, devices, left * speed[i] / total))
        elif plain.get(row) == copies[0]:
            keep.add(leases[row])
        else:
            whole.append(Placement(job, 0, copies[0]))
    stop = [lease for lease in _leases(snap) if lease not in keep]
    start = Placements.of([*whole, *parts])
    return np.array(stop, dtype=np.int64), start, Placements.of(parts)


def _leases(snap: Snapshot) -> Iterable[int]:
    """Return all running leases that are not being preempted, ascending."""
    if snap.holds_lease is None:
        return sorted(snap.lease[snap.lease >= 0].tolist())
    held = snap.holds_lease[snap.holds >= 0]
    return [int(lease) for lease in np.unique(held[held >= 0])]
