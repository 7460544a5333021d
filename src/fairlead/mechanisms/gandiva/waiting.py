"""Units that wait in mid-slice, and those that have homes."""

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaMemory, HomeItems
from fairlead.mechanisms.gandiva.servers import has_room
from fairlead.mechanisms.gandiva.unit_arrays import unit_arrays
from fairlead.model.arrays import IntArray
from fairlead.model.snapshot import Snapshot


class Waiting(NamedTuple):
    """The units of a memory as they stand in mid-slice."""

    ready: list[tuple[tuple[int, ...], HomeItems]]
    """jobs and home of those that wait where enough devices are idle"""
    homed: set[int]
    """jobs of all units that have a home"""
    load: list[int]
    """servers → devices that units with unfinished jobs need there"""


def waiting_units(
    memory: GandivaMemory,
    size: Sequence[int],
    idle: Sequence[int],
    holding: Set[int],
    unfinished: Set[int],
) -> Waiting:
    """Return the units that can start on idle devices, and those that have homes.

    Units of which a job holds devices do not wait. ``size`` is the devices of each server that
    are up: units whose servers have become too small have no home.
    """
    waiting = Waiting([], set(), [0] * len(size))
    for jobs, home in zip(memory.units, memory.homes, strict=True):
        if not has_room(size, home) or unfinished.isdisjoint(jobs):
            continue
        waiting.homed.update(jobs)
        for server, count in home:
            waiting.load[server] += count
        if has_room(idle, home) and holding.isdisjoint(jobs):
            waiting.ready.append((jobs, home))
    return waiting


def waiting_singles(
    memory: GandivaMemory, snap: Snapshot, size: IntArray, idle: IntArray
) -> Waiting | None:
    """Return the same if every unit is one job with a home on one server; else None."""
    if not memory.units or not len(snap.job):
        return None
    arrays = unit_arrays(memory.units, memory.homes)
    if not arrays.are_single:
        return None
    _, job, home, need = arrays
    row = np.minimum(snap.job.searchsorted(job), len(snap.job) - 1)
    homed = (snap.job[row] == job) & (size[home] >= need)
    holds = np.zeros(len(snap.job), dtype=bool)
    holds[snap.holds[snap.holds >= 0]] = True
    ready = (homed & (idle[home] >= need) & ~holds[row]).nonzero()[0].tolist()
    load = np.zeros(len(size), dtype=np.int64)
    np.add.at(load, home[homed], need[homed])
    units = [(memory.units[i], memory.homes[i]) for i in ready]
    return Waiting(units, set(job[homed].tolist()), load.tolist())
