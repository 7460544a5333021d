"""Queues with guaranteed capacity, as in YARN's capacity scheduler: nothing is ever stopped."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._queues.serving import (
    FreeDevicesByAccelerator,
    holds_devices,
    idle_devices,
    start_on,
)
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree


@dataclass(frozen=True)
class Capacity:
    """Start jobs of the tenants that have least of what is guaranteed to them; stop none.

    A tenant is guaranteed what its ``guarantee`` names, and by its weight a part of all that is
    guaranteed to nobody; what a tenant leaves idle others borrow until their jobs end. Inside a
    tenant jobs go by priority, then first in, first out. A gang that finds no room holds back
    the idle devices of the accelerator on which it misses fewest, so that it cannot starve. A
    job takes the accelerator on which its tenant has most left of its guarantee, then the one
    with most idle devices, for the scheduler knows no speeds.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        starvation_free=True,
        reads_progress=False,
        per_accelerator_gangs=True,
        divides_among_tenants=True,
        stops_jobs=False,
    )
    round_s: float = 360.0

    def initial(self) -> None:
        """Return nothing: it decides by the devices held now."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return the jobs that start; running jobs continue."""
        until = snap.starts_at + self.round_s
        idle = idle_devices(snap)
        start = start_on(snap, idle, _choose(snap, idle, snap.on == ABSENT))
        return Plan(NO_INTS, start, until, until), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return the jobs that start on devices that have fallen idle, by the same rules."""
        del memory
        return start_on(snap, idle, _choose(snap, idle, ~holds_devices(snap)))


def _choose(snap: Snapshot, idle: IntArray, waits: BoolArray) -> IntArray:
    """Return rows → accelerator, -1 for none, of the waiting jobs that start on idle devices."""
    wanted = np.full(len(snap.job), ABSENT, dtype=np.int64)
    free = np.bincount(snap.cluster.accelerator_of[idle], minlength=len(snap.capacity))
    room = FreeDevicesByAccelerator(snap, free.tolist())
    quotas = _Quotas(snap, ~waits)
    queues = _queues(snap, waits, room, quotas)

    def turn(tenant: int) -> tuple[float, ...]:
        return *quotas.rank(tenant), float(snap.arrival_at[queues[tenant][-1]]), tenant

    turns = [turn(tenant) for tenant in queues]
    heapify(turns)
    while turns and any(room.free):
        tenant = int(heappop(turns)[-1])
        row = queues[tenant].pop()
        may = [k for k in room.accelerators(row) if quotas.allow(tenant, k, room.gang(row, k))]
        fitting = [k for k in may if room.has(row, k)]
        if fitting:
            accelerator = max(fitting, key=lambda k: (quotas.left(tenant, k), room.free[k]))
            room.take(row, accelerator)
            quotas.take(tenant, accelerator, room.gang(row, accelerator))
            wanted[row] = accelerator
            if queues[tenant]:
                heappush(turns, turn(tenant))
        else:
            # Those behind it wait as well; and since it comes first as soon as enough are idle,
            # nobody else may take the devices it waits for.
            up = [k for k in may if snap.capacity[k] >= room.gang(row, k)]
            if up:
                # Where it misses fewest.
                room.free[max(up, key=lambda k: room.free[k] - room.gang(row, k))] = 0
    return wanted


def _queues(
    snap: Snapshot, waits: BoolArray, room: FreeDevicesByAccelerator, quotas: "_Quotas"
) -> dict[int, list[int]]:
    """Return tenant → its waiting jobs, the first at the end; not those that cannot run now."""
    queues: dict[int, list[int]] = {}
    order = np.lexsort((snap.job, snap.arrival_at, -snap.priority))[::-1]
    capacity = snap.capacity.tolist()
    for row, tenant in zip(order.tolist(), snap.tenant[order].tolist(), strict=True):
        needs = [(k, room.gang(row, k)) for k in room.accelerators(row)] if waits[row] else ()
        if any(capacity[k] >= gang and quotas.could(tenant, k, gang) for k, gang in needs):
            queues.setdefault(tenant, []).append(row)
    return queues


class _Quotas:
    """Devices that tenants are guaranteed, may have at most, and hold."""

    def __init__(self, snap: Snapshot, runs: BoolArray) -> None:
        names = snap.cluster.accelerators
        tenants = snap.tenants
        counts = snap.cluster.counts
        named = [[t.guarantee.get(name, 0.0) for name in names] for t in tenants]
        guaranteed: FloatArray = np.array(named, dtype=np.float64).reshape(
            len(tenants), len(names)
        )
        weight = np.array([t.weight for t in tenants])
        weight[guaranteed.any(axis=1)] = 0.0
        rest = np.maximum(counts - guaranteed.sum(axis=0), 0.0)
        guaranteed += weight[:, None] / max(float(weight.sum()), 1e-12) * rest
        self._guaranteed: list[list[float]] = guaranteed.tolist()
        self._total: list[float] = guaranteed.sum(axis=1).tolist()
        self._limit = [[t.limit.get(name, np.inf) for name in names] for t in tenants]
        self._priority = [t.priority for t in tenants]
        tree = TenantTree(tenants)
        self._line = [tree.ancestors(i) for i in range(len(tenants))]
        """tenant → itself and the tenants it is inside of: a limit covers all inside"""
        self._held = [[0] * len(names) for _ in tenants]
        self._held_inside = [[0] * len(names) for _ in tenants]
        rows = runs.nonzero()[0]
        for tenant, accelerator, gang in zip(
            snap.tenant[rows].tolist(),
            snap.on[rows].tolist(),
            snap.gang_sizes(rows, snap.on[rows]).tolist(),
            strict=True,
        ):
            self.take(tenant, accelerator, gang)

    def rank(self, tenant: int) -> tuple[float, float]:
        """Return what decides whose turn it is, the least first."""
        total = self._total[tenant]
        used = sum(self._held[tenant]) / total if total > 0 else np.inf
        return -self._priority[tenant], used

    def left(self, tenant: int, accelerator: int) -> float:
        """Return how much of the guarantee is not in use there, below 0 for one who borrows."""
        return self._guaranteed[tenant][accelerator] - self._held[tenant][accelerator]

    def allow(self, tenant: int, accelerator: int, gang: int) -> bool:
        """Return whether the tenant and all its ancestors may hold ``gang`` more devices."""
        return all(
            self._held_inside[t][accelerator] + gang <= self._limit[t][accelerator]
            for t in self._line[tenant]
        )

    def could(self, tenant: int, accelerator: int, gang: int) -> bool:
        """Return whether they might if they held nothing."""
        return all(gang <= self._limit[t][accelerator] for t in self._line[tenant])

    def take(self, tenant: int, accelerator: int, gang: int) -> None:
        """Count devices as held."""
        if accelerator < 0:
            return
        self._held[tenant][accelerator] += gang
        for t in self._line[tenant]:
            self._held_inside[t][accelerator] += gang
