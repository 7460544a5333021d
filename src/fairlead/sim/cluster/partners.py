"""Who shares devices with whom in the virtual cluster."""

from collections.abc import Iterable

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements


class Partners:
    """The jobs on each device, kept from the moment when two of them first share one."""

    def __init__(self, job_on: IntArray) -> None:
        """Begin with devices → the one job that holds it, -1 for none."""
        self._on: list[list[int]] = [[job] if job >= 0 else [] for job in job_on.tolist()]
        self._devices: dict[int, IntArray] = {
            job: (job_on == job).nonzero()[0] for job in np.unique(job_on[job_on >= 0]).tolist()
        }

    def start(self, units: Placements) -> set[int]:
        """Enter jobs that start; return all who share devices with another one of them."""
        touched: set[int] = set()
        for unit in units:
            self._devices[unit.job] = np.array(unit.devices, dtype=np.int64)
            for device in unit.devices:
                here = self._on[device]
                here.append(unit.job)
                if len(here) > 1:
                    touched.update(here)
        return touched

    def end(self, jobs: Iterable[int]) -> set[int]:
        """Strike out jobs that ended; return those who shared devices with them and go on."""
        touched: set[int] = set()
        for job in jobs:
            touched.discard(job)
            for device in self._devices.pop(job).tolist():
                here = self._on[device]
                here.remove(job)
                touched.update(here)
        return touched

    def near(self, devices: IntArray) -> set[int]:
        """Return the jobs on these devices."""
        return {job for device in devices.tolist() for job in self._on[device]}

    def devices(self, job: int) -> IntArray:
        """Return the devices that a job holds."""
        return self._devices[job]

    def beside(self, job: int) -> list[int]:
        """Return the jobs that share a device with a job, ascending."""
        found = {other for device in self._devices[job].tolist() for other in self._on[device]}
        return sorted(found - {job})

    def portion(self, job: int) -> float:
        """Return how many devices a job holds, one shared by n jobs counting 1/n."""
        return sum(1 / len(self._on[device]) for device in self._devices[job].tolist())
