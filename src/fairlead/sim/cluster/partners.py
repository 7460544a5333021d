"""Jobs that share devices in the virtual cluster."""

from collections.abc import Iterable

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements


class DevicePartners:
    """The jobs on each device, tracked from the first sharing on."""

    def __init__(self, job_on: IntArray) -> None:
        """Start from ``job_on``: devices → the job that holds it, -1 for none."""
        self._on: list[list[int]] = [[job] if job >= 0 else [] for job in job_on.tolist()]
        self._devices: dict[int, IntArray] = {
            job: (job_on == job).nonzero()[0] for job in np.unique(job_on[job_on >= 0]).tolist()
        }

    def start(self, units: Placements) -> set[int]:
        """Add started jobs; return all jobs that share a device with one of them."""
        affected: set[int] = set()
        for unit in units:
            self._devices[unit.job] = np.array(unit.devices, dtype=np.int64)
            for device in unit.devices:
                here = self._on[device]
                here.append(unit.job)
                if len(here) > 1:
                    affected.update(here)
        return affected

    def end(self, jobs: Iterable[int]) -> set[int]:
        """Remove ended jobs; return the running jobs that shared devices with them."""
        affected: set[int] = set()
        for job in jobs:
            affected.discard(job)
            for device in self._devices.pop(job).tolist():
                here = self._on[device]
                here.remove(job)
                affected.update(here)
        return affected

    def beside(self, job: int) -> tuple[int, list[int]] | None:
        """Return a job's only device and the other jobs on it, None if it holds several."""
        devices = self._devices[job]
        if len(devices) != 1:
            return None
        device = devices.item()
        return device, [other for other in self._on[device] if other != job]

    def jobs_on(self, devices: IntArray) -> set[int]:
        """Return the jobs on these devices."""
        return {job for device in devices.tolist() for job in self._on[device]}

    def devices(self, job: int) -> IntArray:
        """Return the devices that a job holds."""
        return self._devices[job]

    def partners_of(self, job: int) -> list[int]:
        """Return the jobs that share a device with a job, ascending."""
        on_same = {other for device in self._devices[job].tolist() for other in self._on[device]}
        return sorted(on_same - {job})

    def portion(self, job: int) -> float:
        """Return the number of devices that a job holds; a device shared by n jobs counts 1/n."""
        return sum(1 / len(self._on[device]) for device in self._devices[job].tolist())
