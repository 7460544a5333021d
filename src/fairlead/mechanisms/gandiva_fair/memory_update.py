"""Updates the memory to a new snapshot: remaining jobs, and the time they received."""

import numpy as np

from fairlead.mechanisms.gandiva_fair.memory import NOWHERE, FairMemory
from fairlead.mechanisms.gandiva_fair.passes import Passes
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot


def remembered(snap: Snapshot, memory: FairMemory) -> tuple[IntArray, IntArray]:
    """Return the rows of jobs that are remembered, and their places in the memory."""
    at = memory.job.searchsorted(snap.job)
    rows = (np.append(memory.job, -1)[at] == snap.job).nonzero()[0]
    return rows, at[rows]


def homes_and_passes(snap: Snapshot, memory: FairMemory) -> tuple[IntArray, FloatArray]:
    """Return rows → home and pass as of the last plan."""
    return _homes_and_passes(snap, memory, *remembered(snap, memory))


def _homes_and_passes(
    snap: Snapshot, memory: FairMemory, rows: IntArray, at: IntArray
) -> tuple[IntArray, FloatArray]:
    home = np.full(len(snap.job), NOWHERE, dtype=np.int64)
    passes = np.zeros(len(snap.job))
    home[rows], passes[rows] = memory.home[at], memory.passes[at]
    return home, passes


def advanced_homes_and_passes(
    snap: Snapshot, memory: FairMemory, sites: DeviceSites, round_s: float
) -> tuple[Passes, dict[int, dict[int, int]]]:
    """Return homes and passes after what has run since, and row → site → devices of large jobs.

    Jobs whose home is gone have none.
    """
    rows, at = remembered(snap, memory)
    home, passes = _homes_and_passes(snap, memory, rows, at)
    tickets, quanta = np.zeros(len(home)), np.zeros(len(home))
    if len(rows):
        tickets[rows] = memory.tickets[at]
        received = snap.received_s[rows] - memory.received_s[at]
        quanta[rows] = received.sum(axis=1) / round_s
    aggregate = np.full(len(sites), np.nan)
    aggregate[: len(memory.aggregate)] = memory.aggregate  # sites of new nodes come last
    ran = Passes(home, snap.gang, tickets, passes, aggregate).charged(quanta)
    kept = home.copy()
    kept[(home >= 0) & (sites.size[home] < snap.gang)] = NOWHERE
    needs = _needs(snap, memory)
    for row, where in list(needs.items()):
        if any(sites.size[site] < devices for site, devices in where.items()):
            del needs[row]
            kept[row] = NOWHERE
    return Passes(kept, ran.gang, ran.tickets, ran.at, ran.aggregate), needs


def _needs(snap: Snapshot, memory: FairMemory) -> dict[int, dict[int, int]]:
    needs: dict[int, dict[int, int]] = {}
    for job, site, devices in memory.spread.tolist():
        row = int(np.searchsorted(snap.job, job))
        if row < len(snap.job) and snap.job[row] == job:
            needs.setdefault(row, {})[site] = devices
    return needs


def profiled_so_far(snap: Snapshot, memory: FairMemory) -> BoolArray:
    """Return profiles × accelerators → a job of the profile has run there."""
    seen = np.zeros(snap.profiles.speed.shape, dtype=bool)
    if len(memory.seen):
        seen[: len(memory.seen)] = memory.seen
    row, accelerator = (snap.received_s > 0).nonzero()
    seen[snap.profile[row], accelerator] = True
    return seen
