"""Utilisation and memory of leases, by readings of their devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.engines.base import DeviceReading, DevicesRead
from fairlead.live.leases.open_leases import OpenLease


@dataclass(slots=True)
class _Use:
    """Readings of a lease's devices, added up."""

    utilization_sum: float = 0.0
    utilizations: int = 0
    memory_gib: float | None = None
    """greatest memory in use on one device"""

    def add(self, reading: DeviceReading) -> None:
        if reading.utilisation is not None:
            self.utilization_sum += reading.utilisation
            self.utilizations += 1
        if reading.memory_used_gib is not None:
            self.memory_gib = max(self.memory_gib or 0.0, reading.memory_used_gib)


class LeaseUse:
    """Keeps the utilisation and memory of open leases, from readings while each ran alone.

    Readings count from a lease's first step until it is asked to leave. While it shares devices,
    they tell nothing about it, and do not count.
    """

    def __init__(
        self, scheduler: Scheduler[Any], queries: Queries, leases: Mapping[int, OpenLease]
    ) -> None:
        self._scheduler, self._queries, self._leases = scheduler, queries, leases
        self._use: dict[int, _Use] = {}

    def record(self, report: DevicesRead) -> None:
        """Add the readings of a node's devices to the leases that hold them."""
        readings = {(report.node, reading.number): reading for reading in report.readings}
        addresses = self._scheduler.cluster.addresses
        self._use = {lease: use for lease, use in self._use.items() if lease in self._leases}
        for lease in self._leases.values():
            if lease.first_step_at is None or lease.leaving:
                continue
            devices = self._queries.devices_of_lease(lease.number)
            read = [readings[a] for a in map(addresses.__getitem__, devices) if a in readings]
            if not read:
                continue
            shared = self._queries.shared_devices(lease.number)
            if shared is not None and not shared.leases:
                use = self._use.setdefault(lease.number, _Use())
                for reading in read:
                    use.add(reading)

    def utilization(self, lease: int) -> float | None:
        """Return the mean utilisation of a lease's devices, from 0 to 1; None if unknown."""
        use = self._use.get(lease)
        if use is None or not use.utilizations:
            return None
        return use.utilization_sum / use.utilizations

    def memory_gib(self, lease: int) -> float | None:
        """Return the memory that a lease has used on one device; None if unknown."""
        use = self._use.get(lease)
        return None if use is None else use.memory_gib
