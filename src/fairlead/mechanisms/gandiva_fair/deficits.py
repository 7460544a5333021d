"""Device time that tenants were due and have not had: remembered and made up for later.

Whole jobs seldom divide evenly over nodes, and a gang that needs a whole node shares its time
with all others there, however few. So some tenants stay below their share whatever homes their
jobs have. The missed time is added up; beyond the turns that a stride cycle explains, it raises
their tickets until it is made up for. A surplus lowers the tickets of others.
"""

from typing import NamedTuple

import numpy as np

from fairlead.mechanisms.gandiva_fair.memory import SPREAD, FairMemory
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot

TURNS = 2.0
"""turns of each of a tenant's jobs that may be missed or had ahead within a cycle of strides"""
MAX_FACTOR = 2.0
"""greatest factor by which tickets are raised or lowered"""
MIN_OWED = 0.001
"""part of the debt that is forgotten in every quantum"""


class TenantJobs(NamedTuple):
    """The tenants of some jobs, and what each job counts."""

    cell: IntArray
    """jobs × accelerators, one after the other → tenant × accelerators + accelerator"""
    gang: IntArray
    """jobs × 1 → devices"""
    idle: BoolArray | None
    """tenants → it has none of the jobs; None if every tenant has one"""

    @classmethod
    def of(cls, tenant: IntArray, gang: IntArray, tenants: int, width: int) -> "TenantJobs":
        """Return the jobs of this number of tenants, on ``width`` accelerators."""
        idle = np.bincount(tenant, minlength=tenants) == 0
        cell = (tenant[:, None] * width + np.arange(width)).ravel()
        return cls(cell, gang[:, None], idle if idle.any() else None)


def owed_devices(
    snap: Snapshot, memory: FairMemory, sites: DeviceSites, tenants: int, round_s: float
) -> FloatArray:
    """Return tenants × accelerators → devices × quanta due and not had until now."""
    n_accelerators = len(snap.capacity)
    owed = np.zeros((tenants, n_accelerators))
    if len(memory.due):
        quanta = (snap.starts_at - memory.starts_at) / round_s
        owed[: len(memory.due)] = memory.owed * (1 - MIN_OWED) + memory.due * quanta
        if np.array_equal(memory.job, snap.job):
            had = (snap.received_s - memory.received_s) / round_s
            _subtract_rows(owed, snap.tenant, had * snap.gang[:, None])
        else:
            _count_received_of_remaining(owed, snap, memory, sites, round_s)
    active = np.bincount(snap.tenant, minlength=tenants) > 0
    owed[~active] = 0.0
    return owed


def owed_by_jobs(
    memory: FairMemory, starts_at: float, received_s: FloatArray, jobs: TenantJobs, round_s: float
) -> FloatArray:
    """Return the same for jobs that were all there at the last plan."""
    quanta = (starts_at - memory.starts_at) / round_s
    owed: FloatArray = memory.owed * (1 - MIN_OWED) + memory.due * quanta
    had = (received_s - memory.received_s) / round_s
    np.subtract.at(owed.reshape(-1), jobs.cell, (had * jobs.gang).ravel())
    if jobs.idle is not None:
        owed[jobs.idle] = 0.0
    return owed


def _count_received_of_remaining(
    owed: FloatArray, snap: Snapshot, memory: FairMemory, sites: DeviceSites, round_s: float
) -> None:
    """Subtract the time of jobs that remain, and the due of those that have ended."""
    quanta = (snap.starts_at - memory.starts_at) / round_s
    place = snap.job.searchsorted(memory.job)
    stays = np.append(snap.job, -1)[place] == memory.job
    rows = place[stays]
    had = (snap.received_s[rows] - memory.received_s[stays]) / round_s
    _subtract_rows(owed, snap.tenant[rows], had * snap.gang[rows][:, None])
    gone = (~stays & (memory.home >= 0)).nonzero()[0]
    # The time of a job in its last quantum is not known: its due counts.
    at = memory.tenant[gone], sites.accelerator[memory.home[gone]]
    np.subtract.at(owed, at, memory.tickets[gone] * quanta)
    for i in (~stays & (memory.home == SPREAD)).nonzero()[0].tolist():
        site = memory.spread[memory.spread[:, 0] == memory.job[i], 1][0]
        owed[memory.tenant[i], sites.accelerator[site]] -= memory.tickets[i] * quanta


def _subtract_rows(owed: FloatArray, tenant: IntArray, amount: FloatArray) -> None:
    """Subtract each row of amounts from its tenant's; numpy is fast only in one dimension."""
    width = owed.shape[1]
    at = tenant[:, None] * width + np.arange(width)
    np.subtract.at(owed.reshape(-1), at.ravel(), amount.ravel())


def ticket_factors(
    owed: FloatArray, due: FloatArray, demand: FloatArray, quanta: float
) -> FloatArray:
    """Return tenants × accelerators → factor on tickets that makes up for it in ``quanta``.

    ``demand`` is what a tenant's jobs on an accelerator can use: one turn of each of them.
    """
    chance = TURNS * demand
    if (np.abs(owed) <= chance).all():
        return np.ones_like(owed)
    missed = np.sign(owed) * np.maximum(np.abs(owed) - chance, 0.0)
    part = np.divide(missed, due * quanta, out=np.zeros_like(owed), where=due > 0)
    factor: FloatArray = np.clip(1.0 + part, 1.0 / MAX_FACTOR, MAX_FACTOR)
    return factor


def bounded_owed(
    owed: FloatArray, due: FloatArray, demand: FloatArray, quanta: float
) -> FloatArray:
    """Return the debt, cut to the amount that tickets can make up for."""
    most = TURNS * demand + (MAX_FACTOR - 1) * due * quanta
    kept: FloatArray = np.clip(owed, -most, most)
    return kept
