"""Tenant limits: enforced on every plan and refill, independently of the mechanism."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.core.jobs import PROFILE, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree, whole_devices

Unit = tuple[int, Sequence[int]]
"""a job and the devices that it holds or will hold"""


def has_tenant_limits(tenants: Iterable[Tenant]) -> bool:
    """Return whether any tenant has a limit."""
    return any(tenant.limit for tenant in tenants)


class TenantLimits:
    """Compares the devices that tenants and their descendants hold with their limits.

    A limit counts whole devices, rounded up. A device that packed jobs share counts for each of
    them by its fraction; once a partner has left, the next plan preempts the excess.
    """

    def __init__(self, jobs: JobTable, leases: LeaseTable, cluster: Cluster) -> None:
        self._jobs, self._leases = jobs, leases
        self._accelerator_of, names = cluster.accelerator_of, cluster.accelerators
        limited = [i for i, tenant in enumerate(jobs.tenants) if tenant.limit]
        limits = [jobs.tenants[i].limit for i in limited]
        self._limit: FloatArray = np.array(
            [[whole_devices(limit.get(name, math.inf)) for name in names] for limit in limits],
            dtype=np.float64,
        )
        """tenants with a limit × accelerators → devices"""
        self._covering: BoolArray = TenantTree(jobs.tenants).inside(limited).T
        """tenants × tenants with a limit → the limit counts the first tenant's devices"""

    def enforce(
        self, stop: IntArray, waiting: Placements, start: Placements
    ) -> tuple[IntArray, BoolArray]:
        """Return the slots to stop, including ``stop``, and a mask of placements that may start.

        Running leases come first, by age, then waiting placements, then placements to start.
        """
        slots = np.setdiff1d(self._leases.active_slots, stop)
        slots = slots[self._leases.lease[slots].argsort()]
        running = self._running(slots)
        units = [*running, *_units(waiting), *_units(start)]
        may = self._admit(units)
        over = slots[~may[: len(slots)]]
        return np.union1d(stop, over), may[len(units) - len(start) :]

    def jobs_at_limit(self, waiting: Placements) -> IntArray:
        """Return the active jobs without devices whose tenants have reached their limits."""
        units = [*self._running(self._leases.active_slots), *_units(waiting)]
        full = self._used(units) >= self._limit
        closed = np.array([full[covering].any(axis=0).all() for covering in self._covering])
        jobs = self._jobs
        active = jobs.active[~self._leases.hold_open(jobs.active)]
        active = active[~np.isin(active, waiting.job)]
        at_limit: IntArray = active[closed[jobs.profiles.tenant[jobs.ints[active, PROFILE]]]]
        return at_limit

    def _running(self, slots: IntArray) -> list[Unit]:
        devices: dict[int, list[int]] = {slot: [] for slot in slots.tolist()}
        for lane in self._leases.holder.tolist():
            for device, slot in enumerate(lane):
                if slot in devices:
                    devices[slot].append(device)
        return [(int(self._leases.job[slot]), held) for slot, held in devices.items()]

    def _admit(self, units: Sequence[Unit]) -> BoolArray:
        """units → it is within the limits beside the units before it."""
        admitted = np.ones(len(units), dtype=bool)
        before = None
        while before is None or (before != admitted).any():
            # If a unit is rejected, its partner holds a larger fraction of the device.
            before = admitted.copy()
            fraction = _device_fractions(
                [unit for unit, may in zip(units, admitted, strict=True) if may]
            )
            used = np.zeros_like(self._limit)
            for i in admitted.nonzero()[0].tolist():
                job, devices = units[i]
                covering = self._covering[self._tenant(job)]
                more = self._counted_devices(devices, fraction)
                admitted[i] = not (used[covering] + more > self._limit[covering] + 1e-9).any()
                if admitted[i]:
                    used[covering] += more
        return admitted

    def _used(self, units: Sequence[Unit]) -> FloatArray:
        fraction = _device_fractions(units)
        used = np.zeros_like(self._limit)
        for job, devices in units:
            used[self._covering[self._tenant(job)]] += self._counted_devices(devices, fraction)
        return used

    def _counted_devices(self, devices: Sequence[int], fraction: dict[int, float]) -> FloatArray:
        """accelerators → devices that count for a unit on these devices."""
        counted = np.zeros(self._limit.shape[1])
        for device in devices:
            counted[self._accelerator_of[device]] += fraction[device]
        return counted

    def _tenant(self, job: int) -> int:
        return int(self._jobs.profiles.tenant[self._jobs.ints[job, PROFILE]])


def _device_fractions(units: Sequence[Unit]) -> dict[int, float]:
    """Return device → fraction of it that counts for each of the units on it."""
    count: dict[int, int] = {}
    for _, devices in units:
        for device in devices:
            count[device] = count.get(device, 0) + 1
    return {device: 1.0 / n for device, n in count.items()}


def _units(placements: Placements) -> list[Unit]:
    return [(placement.job, placement.devices) for placement in placements]
