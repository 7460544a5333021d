"""Homes of new jobs: Algorithm 2 of Gandiva_fair, with opportunistic profiling (§3.5)."""

import heapq
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.snapshot import Snapshot

_WHOLE = 1.0 - 1e-9


class SpeedKnowledge:
    """Known speeds and the order of accelerators."""

    def __init__(self, snap: Snapshot, seen: BoolArray) -> None:
        self._snap = snap
        self.speed = snap.profiles.speed
        """profiles × accelerators → steps per second as believed"""
        self.seen = seen
        """profiles × accelerators → a job has run there, so the speed may be used"""

    @cached_property
    def newest(self) -> tuple[int, ...]:
        """The accelerators, those that count as newest first; few quanta need it."""
        return newest_first(self._snap)


def newest_first(snap: Snapshot) -> tuple[int, ...]:
    """Return the accelerators, those on which jobs are believed to run fastest first.

    The paper ranks GPU models by generation; what is believed of speeds stands for that. A job
    that runs on one accelerator only says nothing about others.
    """
    speed = snap.profiles.speed[np.bincount(snap.profile).nonzero()[0]]
    speed = speed[(speed > 0).sum(axis=1) > 1]
    relative = (speed / speed.max(axis=1, initial=1e-300, keepdims=True)).sum(axis=0)
    mean = relative / np.maximum((speed > 0).sum(axis=0), 1)
    order: list[int] = (-mean.round(9)).argsort(kind="stable").tolist()
    return tuple(order)


def allocate_all(homes: JobHomes, known: SpeedKnowledge, rows: IntArray) -> None:
    """Give homes to jobs without one, in the order and by the choices of Algorithm 2.

    The tenant that uses least for its tickets comes first (line 2), with its job of the highest
    priority, then of the earliest arrival (line 3). A gang that does not fit anywhere now stays
    without a home.
    """
    snap = homes.snap
    if not len(rows) or not snap.capacity.any():
        return  # no device is up, so nobody has tickets or finds a home
    order = np.lexsort((snap.job[rows], snap.arrival_at[rows], -snap.priority[rows]))
    queues: dict[int, list[int]] = {}
    for row in rows[order][::-1].tolist():
        queues.setdefault(int(homes.tenant[row]), []).append(row)
    weight: list[float] = homes.tickets.sum(axis=1).tolist()
    used: list[float] = np.sum([pool.demand for pool in homes.pools], axis=0).tolist()
    heap = [(used[tenant] / weight[tenant], tenant) for tenant in queues]
    heapq.heapify(heap)
    while heap:
        _, tenant = heapq.heappop(heap)
        row = queues[tenant].pop()
        where = choose_home(homes, known, row)
        if where:
            homes.set_home(row, where)
            used[tenant] += int(homes.gang[row])
        if queues[tenant]:
            heapq.heappush(heap, (used[tenant] / weight[tenant], tenant))


def choose_home(homes: JobHomes, known: SpeedKnowledge, row: int) -> Mapping[int, int]:
    """Return sites → devices for a job: lines 4 to 11; empty where it fits nowhere now."""
    speed: list[float] = known.speed[homes.profile[row]].tolist()
    gang, devices = int(homes.gang[row]), homes.snap.capacity
    fits = [k for k in known.newest if speed[k] > 0 and devices[k] >= gang]
    return choose_sites(homes, row, _choose_kind(homes, known, row, fits)) if fits else {}


def _choose_kind(homes: JobHomes, known: SpeedKnowledge, row: int, fits: list[int]) -> int:
    """Return the accelerator for a new job.

    A known speed decides by line 5, the least mini-batch time for the tickets. An unknown one
    has to be measured: on the newest accelerator of which the tenant has devices left (§3.5,
    Profiling), or, once it has none left, where its jobs share least.
    """
    profile, tenant, gang = homes.profile[row], int(homes.tenant[row]), int(homes.gang[row])
    speed, seen = known.speed[profile].tolist(), known.seen[profile].tolist()
    time = {k: homes.pools[k].time(tenant, gang) for k in fits}
    seen_here = [k for k in fits if seen[k]]
    best = max(seen_here, key=lambda k: speed[k] * time[k], default=None)
    if best is None or time[best] < _WHOLE:
        spare = [k for k in fits if not seen[k] and time[k] >= _WHOLE]
        if spare:
            return spare[0]
    return max(fits, key=lambda k: time[k]) if best is None else best


def choose_sites(homes: JobHomes, row: int, accelerator: int) -> Mapping[int, int]:
    """Return sites → devices for a job: where it disturbs nobody, else where load is least.

    A job that finds room beside others joins them where it leaves least, so that gangs still
    find whole nodes (§3.3). A gang larger than every site takes the least loaded ones (lines 9
    to 11).
    """
    up, gang = homes.up[accelerator], int(homes.gang[row])
    size = homes.sites.size[up]
    room = size - homes.wanted[up] - gang
    if room.max(initial=-1) >= 0:
        return {int(up[np.where(room >= 0, room, len(homes.sites.of_device)).argmin()]): gang}
    load = homes.load(accelerator).round(9)
    if size.max(initial=0) >= gang:
        return {int(up[np.where(size >= gang, load, np.inf).argmin()]): gang}
    where: dict[int, int] = {}
    for site in up[load.argsort(kind="stable")].tolist():
        where[site] = min(gang, int(homes.sites.size[site]))
        gang -= where[site]
        if not gang:
            return where
    return {}
