"""Device memory of jobs: as declared, else by readings of the device that a job holds or held."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import JobState, Queries
from fairlead.engines.base import DeviceReading
from fairlead.live.nodes.device_health import Device


class JobMemory:
    """Remembers how much memory of its device each preempted job has used."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        queries: Queries,
        readings: Mapping[Device, DeviceReading],
    ) -> None:
        """Take memory from the last readings of devices, which others keep up to date."""
        self._scheduler, self._queries, self._readings = scheduler, queries, readings
        self._last_gib: dict[str, float] = {}
        """job → memory that it used on one device before it was preempted"""

    def note(self, leases: Iterable[int]) -> None:
        """Remember the memory of leases that will be preempted; forget that of ended jobs."""
        self._last_gib = {
            job_id: gib for job_id, gib in self._last_gib.items() if self._may_return(job_id)
        }
        for lease in leases:
            shared, gib = self._queries.shared_devices(lease), self._used_gib(lease)
            if shared is not None and gib is not None:
                # A job that was preempted soon after its start had not taken all of it.
                self._last_gib[shared.job_id] = max(gib, self._last_gib.get(shared.job_id, 0.0))

    def needed_gib(self, job: int) -> float | None:
        """Return the memory that a job needs on one device; None if it is unknown."""
        declared_gib, status = self._queries.job(job).memory_gib, self._queries.job_status(job)
        if declared_gib is not None:
            return declared_gib
        if status.lease is not None:
            return self._used_gib(status.lease)
        return self._last_gib.get(self._queries.job_id(job))

    def _used_gib(self, lease: int) -> float | None:
        """Return the memory in use on the device of a lease; None if it has several."""
        addresses = self._scheduler.cluster.addresses
        devices = self._queries.devices_of_lease(lease)
        reading = self._readings.get(addresses[devices[0]]) if len(devices) == 1 else None
        return None if reading is None else reading.memory_used_gib

    def _may_return(self, job_id: str) -> bool:
        job = self._queries.find_job(job_id)
        if job is None:
            return False
        return self._queries.job_state(job) in (JobState.ACTIVE, JobState.HELD)
