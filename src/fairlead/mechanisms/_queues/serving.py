"""Serves jobs in an order: whole gangs, each on one accelerator, running jobs kept in place."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot
from fairlead.placement import place_gangs


@lru_cache(maxsize=4)
def _runs_on(profiles: Profiles, *, fastest: bool) -> list[list[int]]:
    """Return profiles → accelerators on which its jobs can run, the fastest first if wanted."""
    order = np.argsort(-profiles.speed, axis=1, kind="stable").tolist()
    runs_on = [
        [accelerator for accelerator in accelerators if speed[accelerator] > 0]
        for accelerators, speed in zip(order, profiles.speed.tolist(), strict=True)
    ]
    # A scheduler that knows no speeds must not prefer by them, not even to break ties.
    return runs_on if fastest else [sorted(accelerators) for accelerators in runs_on]


@lru_cache(maxsize=4)
def _gangs(profiles: Profiles) -> list[list[int]]:
    """Return profiles → accelerators → devices needed at once there."""
    gangs: list[list[int]] = np.broadcast_to(profiles.gang_on, profiles.speed.shape).tolist()
    return gangs


class FreeDevicesByAccelerator:
    """The devices not given away yet on each accelerator, given to whole gangs only."""

    def __init__(self, snap: Snapshot, free: Iterable[int], *, fastest: bool = False) -> None:
        """Offer these devices: to each job its fastest accelerator, or the one with most left."""
        self.free = list(free)
        self._fastest = fastest
        self._runs_on = _runs_on(snap.profiles, fastest=fastest)
        self._gang = _gangs(snap.profiles)
        self._profile: list[int] = snap.profile.tolist()

    def gang(self, row: int, accelerator: int) -> int:
        """Return how many devices of an accelerator the job needs at once."""
        return self._gang[self._profile[row]][accelerator]

    def accelerators(self, row: int) -> list[int]:
        """Return the accelerators on which the job can run."""
        return self._runs_on[self._profile[row]]

    def best(self, row: int) -> int:
        """Return the accelerator with room for the job that it should take, ABSENT for none."""
        free, gang = self.free, self._gang[self._profile[row]]
        fitting = [
            accelerator
            for accelerator in self.accelerators(row)
            if free[accelerator] >= gang[accelerator]
        ]
        if not fitting:
            return ABSENT
        return (
            fitting[0]
            if self._fastest
            else max(fitting, key=lambda accelerator: free[accelerator])
        )

    def has(self, row: int, accelerator: int) -> bool:
        """Return whether the job's gang fits on this accelerator."""
        return accelerator >= 0 and self.free[accelerator] >= self.gang(row, accelerator)

    def take(self, row: int, accelerator: int) -> None:
        """Give the job its devices."""
        self.free[accelerator] -= self.gang(row, accelerator)


def serve_in_order(room: FreeDevicesByAccelerator, order: Iterable[int], wanted: IntArray) -> None:
    """Give the remaining devices to jobs without any, in this order; gangs that do not fit wait.

    A job that does not fit does not block those behind it: where running jobs can be stopped, its
    turn comes with the next decision at which it stands before them.
    """
    for row in order:
        if not any(room.free):
            return
        if wanted[row] < 0:
            accelerator = room.best(row)
            if accelerator >= 0:
                room.take(row, accelerator)
                wanted[row] = accelerator


def serve_preemptively(snap: Snapshot, order: IntArray, *, fastest: bool = False) -> IntArray:
    """Return rows → accelerator (-1: none) when jobs are served in this order from all devices.

    With ``fastest`` each job takes the fastest accelerator with room, and moves if that is
    another than before. Otherwise running jobs stay where they are, and those that start
    take the accelerator with most devices left.
    """
    rows: list[int] = order.tolist()
    wanted = np.full(len(snap.job), ABSENT, dtype=np.int64)
    room = FreeDevicesByAccelerator(snap, snap.capacity.tolist(), fastest=fastest)
    if fastest:
        serve_in_order(room, rows, wanted)
        return wanted
    on: list[int] = snap.on.tolist()
    for row in rows:
        accelerator = on[row] if room.has(row, on[row]) else room.best(row)
        if accelerator >= 0:
            room.take(row, accelerator)
            wanted[row] = accelerator
    kept = _without_moves(snap, rows, wanted)
    return wanted if kept is None else kept


def _without_moves(snap: Snapshot, rows: list[int], chosen: IntArray) -> IntArray | None:
    """Return the same choice of jobs with nobody moved, None where gangs then do not fit."""
    room = FreeDevicesByAccelerator(snap, snap.capacity.tolist())
    goes_on = (chosen >= 0) & (snap.on >= 0)
    wanted = np.where(goes_on, snap.on, ABSENT)
    for row in goes_on.nonzero()[0].tolist():
        room.take(row, int(wanted[row]))
    starts = [row for row in rows if chosen[row] >= 0 and not goes_on[row]]
    # Larger gangs first; stable: equal ones keep their order.
    starts.sort(key=lambda row: room.gang(row, int(chosen[row])), reverse=True)
    serve_in_order(room, starts, wanted)
    if any(wanted[row] < 0 for row in starts):
        return None
    serve_in_order(room, rows, wanted)
    return wanted


def serve_idle_devices(
    snap: Snapshot, order: IntArray, idle: IntArray, *, fastest: bool = False
) -> Placements:
    """Return jobs that hold nothing, served in this order from idle devices only."""
    n_accelerators = len(snap.capacity)
    free = np.bincount(snap.cluster.accelerator_of[idle], minlength=n_accelerators)
    wanted = np.full(len(snap.job), ABSENT, dtype=np.int64)
    waits = ~holds_devices(snap)
    serve_in_order(
        FreeDevicesByAccelerator(snap, free.tolist(), fastest=fastest),
        order[waits[order]].tolist(),
        wanted,
    )
    return start_on(snap, idle, wanted)


def start_on(snap: Snapshot, idle: IntArray, wanted: IntArray) -> Placements:
    """Return placements on idle devices for all rows that want an accelerator."""
    rows = (wanted >= 0).nonzero()[0]
    if not len(rows):
        return NO_PLACEMENTS
    free = np.zeros(len(snap.cluster.node_of), dtype=bool)
    free[idle] = True
    return place_gangs(snap, free, rows, wanted[rows])


def holds_devices(snap: Snapshot) -> BoolArray:
    """rows → the job holds devices, or devices wait for it."""
    held = np.zeros(len(snap.job) + 1, dtype=bool)
    held[snap.holds] = True
    return held[:-1]


def idle_devices(snap: Snapshot) -> IntArray:
    """Return the devices that are up and that no running job holds, ascending.

    Devices that only wait for a job count as idle: a new plan decides about them again.
    """
    runs = np.append(snap.on != ABSENT, False)
    busy: BoolArray = np.logical_or.reduce(runs[snap.holds], axis=0)
    idle: IntArray = snap.usable[~busy[snap.usable]]
    return idle


def by_arrival(snap: Snapshot) -> IntArray:
    """Return the rows in order of arrival, then of submission."""
    return np.lexsort((snap.job, snap.arrival_at))
