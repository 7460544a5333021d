"""AlloX: least average completion time by matching jobs to places in queues (EuroSys 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._queues.matching import match
from fairlead.mechanisms._queues.serving import holds_devices, idle_devices, start_on
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """The jobs that waited at the last matching, those to start first in front."""

    job: IntArray
    accelerator: IntArray
    """accelerator in whose queue the job stands"""
    changes: int
    """the snapshot's count of changes at that matching"""


@dataclass(frozen=True)
class AlloX:
    """Start jobs where and in the order that make the sum of all completion times least.

    A job that is k-th from the end of a device's queue delays k jobs, itself included, by its
    own time there; so the best queues are a matching of jobs to (device, k) at the cost k × time
    plus the time until the device falls idle. Running jobs are never stopped or moved. Long jobs
    starve while shorter ones keep coming. AlloX knows jobs of one device only; here a larger
    gang stands in the queue of one device with gang × its time, and when its turn comes
    devices of that accelerator are held back until enough are idle.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    round_s: float = 360.0

    def initial(self) -> Queues:
        """Return empty queues."""
        return Queues(NO_INTS, NO_INTS, -1)

    def plan(self, snap: Snapshot, memory: Queues) -> tuple[Plan, Queues]:
        """Return the jobs that are first in the queue of an idle device, and the new queues."""
        until = snap.starts_at + self.round_s
        waits = snap.on == ABSENT
        # A job for which devices are being vacated must be named again, or it is forgotten.
        if memory.changes == snap.changes and not (holds_devices(snap) & waits).any():
            return Plan(NO_INTS, NO_PLACEMENTS, until, until), memory
        idle = idle_devices(snap)
        rows, accelerator, start_s = _queues(snap, idle)
        now = start_s <= 0
        start = start_on(snap, idle, _next_in_queues(snap, rows[now], accelerator[now], idle))
        queues = Queues(snap.job[rows], accelerator, snap.changes)
        return Plan(NO_INTS, start, until, until, reallocated=True), queues

    def refill(self, snap: Snapshot, memory: Queues, idle: IntArray) -> Placements:
        """Return the next in the queues; new jobs only if their best accelerator has room."""
        waits = ~holds_devices(snap)
        known = np.isin(memory.job, snap.job[waits])
        rows = np.searchsorted(snap.job, memory.job[known])
        waits[rows] = False
        new = waits.nonzero()[0]
        time = _times(snap, new)
        new, time = new[np.isfinite(time).any(axis=1)], time[np.isfinite(time).any(axis=1)]
        order = time.min(axis=1, initial=np.inf).argsort(kind="stable")
        rows = np.concatenate([rows, new[order]])
        accelerator = np.concatenate([memory.accelerator[known], time.argmin(axis=1)[order]])
        return start_on(snap, idle, _next_in_queues(snap, rows, accelerator, idle))


def _next_in_queues(
    snap: Snapshot, rows: IntArray, accelerator: IntArray, idle: IntArray
) -> IntArray:
    """Return rows → accelerator for those whose turn has come: a gang without room ends it."""
    n_accelerators = len(snap.capacity)
    free = np.bincount(snap.cluster.accelerator_of[idle], minlength=n_accelerators).tolist()
    wanted = np.full(len(snap.job), ABSENT, dtype=np.int64)
    gang = snap.gang_sizes(rows, accelerator).tolist()
    for row, column, devices in zip(rows.tolist(), accelerator.tolist(), gang, strict=True):
        if devices <= free[column]:
            free[column] -= devices
            wanted[row] = column
        elif devices <= snap.capacity[column]:
            free[column] = 0
    return wanted


def _times(snap: Snapshot, rows: IntArray) -> FloatArray:
    """Return jobs × accelerators → gang × seconds to finish there, infinite where it cannot."""
    gang = snap.gang_on[rows]
    speed = np.where(snap.capacity >= gang, snap.speed[rows], 0.0)
    time = np.full(speed.shape, np.inf)
    work = snap.steps_left[rows][:, None] * gang
    np.divide(np.broadcast_to(work, speed.shape), speed, out=time, where=speed > 0)
    return time


def _queues(snap: Snapshot, idle: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the waiting jobs as they should start: row, accelerator, in how many seconds."""
    rows = (snap.on == ABSENT).nonzero()[0]
    time = _times(snap, rows)
    possible = np.isfinite(time).any(axis=1)
    rows, time = rows[possible], time[possible]
    if not len(rows):
        return rows, NO_INTS, np.zeros(0)
    delays = _delays(snap, idle)
    position, accelerator_of = _groups(2 + 2 * len(rows) // len(snap.usable), len(delays))
    # Long jobs first: those that come later then take the places before theirs.
    order = (-time.min(axis=1)).argsort(kind="stable")
    while True:
        surcharge = [delays[accelerator] for accelerator in accelerator_of.tolist()]
        group = match(position * time[:, accelerator_of], surcharge, order)
        most = int(position.max())
        if group is not None and (most >= len(rows) or position[group].max() < most):
            break
        position, accelerator_of = _groups(2 * most, len(delays))
    accelerator = accelerator_of[group]
    start_s = _starts(
        delays, accelerator, position[group], time[np.arange(len(rows)), accelerator]
    )
    order = np.lexsort((snap.job[rows], start_s))
    return rows[order], accelerator[order], start_s[order]


def _groups(positions: int, n_accelerators: int) -> tuple[IntArray, IntArray]:
    """Return groups of slots → position from the end of a queue, and whose queue."""
    return np.tile(np.arange(1, positions + 1), n_accelerators), np.arange(n_accelerators).repeat(
        positions
    )


def _delays(snap: Snapshot, idle: IntArray) -> list[FloatArray]:
    """Return for each accelerator when its devices that are up fall idle, in seconds, sorted."""
    runs = (snap.on >= 0).nonzero()[0]
    left_s = np.zeros(len(snap.job) + 1)
    left_s[runs] = snap.steps_left[runs] / np.maximum(snap.speed[runs, snap.on[runs]], 1e-12)
    delay = left_s[snap.holds].max(axis=0)
    delay[idle] = 0.0
    accelerator_of = snap.cluster.accelerator_of[snap.usable]
    return [
        np.sort(delay[snap.usable[accelerator_of == accelerator]])
        for accelerator in range(len(snap.capacity))
    ]


def _starts(
    delays: list[FloatArray], accelerator: IntArray, position: IntArray, time: FloatArray
) -> FloatArray:
    """Return rows → seconds until the job starts, given its place and its time there.

    At one position jobs may swap devices of an accelerator at no cost, so there the shorter
    ones start sooner.
    """
    start = np.zeros(len(accelerator))
    shortest_first = time.argsort(kind="stable")
    for at, delay in enumerate(delays):
        mine = shortest_first[accelerator[shortest_first] == at]
        ahead = delay.copy()
        """devices → when it is done with what stands ahead in its queue"""
        for place in range(int(position[mine].max(initial=0)), 0, -1):
            here = mine[position[mine] == place]
            soonest = ahead[: len(here)].argsort(kind="stable")
            start[here] = ahead[soonest]
            ahead[soonest] += time[here]
    return start
