"""What tenants hold never exceeds their limits, whatever a mechanism plans."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.core.jobs import PROFILE, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Tenant
from fairlead.model.lease import Placements
from fairlead.model.tenants.limits import whole

Unit = tuple[int, Sequence[int]]
"""a job and the devices that it holds or is to hold"""


def has_tenant_limits(tenants: Iterable[Tenant]) -> bool:
    """Tell whether some tenant may not hold whatever it is given."""
    return any(tenant.limit for tenant in tenants)


class Limits:
    """Devices that tenants hold, with all inside them, against what they may hold at a time.

    A limit counts whole devices, a part of one as one. A device that packed jobs share counts for
    each of them by its part; what a job holds more since its partner has gone is taken back at
    the next plan.
    """

    def __init__(self, jobs: JobTable, leases: LeaseTable, cluster: Cluster) -> None:
        self._jobs, self._leases = jobs, leases
        self._accelerator_of, kinds = cluster.accelerator_of, cluster.accelerators
        held = [tenant for tenant in jobs.tenants if tenant.limit]
        self._most: FloatArray = np.array(
            [[whole(tenant.limit.get(kind, math.inf)) for kind in kinds] for tenant in held],
            dtype=np.float64,
        )
        """holders of a limit × accelerators → devices"""
        self._mine = [
            np.array([_is_descendant(jobs.tenants, tenant, one) for one in held])
            for tenant in jobs.tenants
        ]
        """tenants → holders whose limit covers it"""

    def sifted(
        self, stop: IntArray, waiting: Placements, start: Placements
    ) -> tuple[IntArray, BoolArray]:
        """Return the slots that have to stop, these included, and which placements may start.

        Whoever runs comes first, by age, then what waits for its devices, then the others.
        """
        slots = np.setdiff1d(self._leases.staying, stop)
        slots = slots[self._leases.lease[slots].argsort()]
        running = self._running(slots)
        units = [*running, *_units(waiting), *_units(start)]
        may = self._admit(units)
        over = slots[~may[: len(slots)]]
        return np.union1d(stop, over), may[len(units) - len(start) :]

    def jobs_at_limit(self, waiting: Placements) -> IntArray:
        """Return the active jobs that hold nothing and whose tenants may not hold any more."""
        units = [*self._running(self._leases.staying), *_units(waiting)]
        full = self._used(units) >= self._most
        closed = np.array([full[mine].any(axis=0).all() for mine in self._mine])
        jobs = self._jobs
        active = jobs.active[jobs.lease[jobs.active] < 0]
        active = active[~np.isin(active, waiting.job)]
        none: IntArray = active[closed[jobs.profiles.tenant[jobs.ints[active, PROFILE]]]]
        return none

    def _running(self, slots: IntArray) -> list[Unit]:
        devices: dict[int, list[int]] = {slot: [] for slot in slots.tolist()}
        for lane in self._leases.holder.tolist():
            for device, slot in enumerate(lane):
                if slot in devices:
                    devices[slot].append(device)
        return [(int(self._leases.job[slot]), held) for slot, held in devices.items()]

    def _admit(self, units: Sequence[Unit]) -> BoolArray:
        """units → it fits beside those before it."""
        found = np.ones(len(units), dtype=bool)
        before = None
        while before is None or (before != found).any():
            # Where a unit was refused its partner holds a larger part of the device.
            before = found.copy()
            part = _parts([unit for unit, may in zip(units, found, strict=True) if may])
            used = np.zeros_like(self._most)
            for i in found.nonzero()[0].tolist():
                job, devices = units[i]
                mine, more = self._mine[self._tenant(job)], self._needs(devices, part)
                found[i] = not (used[mine] + more > self._most[mine] + 1e-9).any()
                if found[i]:
                    used[mine] += more
        return found

    def _used(self, units: Sequence[Unit]) -> FloatArray:
        part = _parts(units)
        used = np.zeros_like(self._most)
        for job, devices in units:
            used[self._mine[self._tenant(job)]] += self._needs(devices, part)
        return used

    def _needs(self, devices: Sequence[int], part: dict[int, float]) -> FloatArray:
        """accelerators → devices that count for a unit on these."""
        needs = np.zeros(self._most.shape[1])
        for device in devices:
            needs[self._accelerator_of[device]] += part[device]
        return needs

    def _tenant(self, job: int) -> int:
        return int(self._jobs.profiles.tenant[self._jobs.ints[job, PROFILE]])


def _parts(units: Sequence[Unit]) -> dict[int, float]:
    """Return device → which part of it each of the units there counts for."""
    count: dict[int, int] = {}
    for _, devices in units:
        for device in devices:
            count[device] = count.get(device, 0) + 1
    return {device: 1.0 / n for device, n in count.items()}


def _units(placements: Placements) -> list[Unit]:
    return [(placement.job, placement.devices) for placement in placements]


def _is_descendant(tenants: Sequence[Tenant], tenant: Tenant, outer: Tenant) -> bool:
    """Tell whether a tenant is ``outer`` or inside it."""
    parent = {one.id: one.parent for one in tenants}
    at: str | None = tenant.id
    while at is not None and at != outer.id:
        at = parent.get(at)
    return at == outer.id
