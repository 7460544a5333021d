"""Jobs that share devices in the virtual cluster."""

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.lease import Placements, free_lanes


class DevicePartners:
    """The jobs on each device, tracked from the first sharing on."""

    def __init__(self, job_on: IntArray, n_jobs: int) -> None:
        """Start from ``job_on``: devices → the job that holds it, -1 for none."""
        self._holder = job_on[None, :].copy()
        """lanes × devices → job, -1 where free"""
        self._device = np.full(n_jobs, -1, dtype=np.int64)
        """job → its device, if it holds exactly one; else -1"""
        self._gangs: dict[int, IntArray] = {}
        """job → its devices, of jobs that hold several"""
        held = (job_on >= 0).nonzero()[0]
        self._device[job_on[held]] = held
        for job in (np.bincount(job_on[held]) > 1).nonzero()[0].tolist():
            self._add_gang(job, (job_on == job).nonzero()[0])

    def start(self, units: Placements) -> IntArray:
        """Add started jobs; return all jobs that share a device with one of them, -1 for none."""
        size, device = units.size, units.device
        self._holder, lane = free_lanes(self._holder, device)
        self._holder[lane, device] = units.job.repeat(size)
        self._device[units.job] = units.first
        for i in (size > 1).nonzero()[0].tolist():
            self._add_gang(int(units.job[i]), device[units.start[i] : units.start[i + 1]])
        here = self._holder[:, device]
        return here[:, (here >= 0).sum(axis=0) > 1]

    def end(self, jobs: IntArray) -> IntArray:
        """Remove ended jobs; return the jobs that shared devices with them, -1 for none."""
        devices = self.devices_of(jobs)
        ended = np.zeros(len(self._device) + 1, dtype=bool)  # the last one is nobody
        ended[jobs] = True
        here = self._holder[:, devices]
        here[ended[here]] = -1
        self._holder[:, devices] = here
        for job in jobs[self._device[jobs] < 0].tolist():
            del self._gangs[job]
        self._device[jobs] = -1
        return here

    def in_pairs(self, jobs: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
        """Return jobs → whether it has one device and at most one partner there.

        Also return the devices and the partners, -1 for none, of the jobs for which this holds.
        """
        device = self._device[jobs]
        here = self._holder[:, device]
        pair: BoolArray = (device >= 0) & ((here >= 0).sum(axis=0) <= 2)
        partner = np.where(here == jobs, -1, here).max(axis=0)
        return pair, device[pair], partner[pair]

    def jobs_on(self, devices: IntArray) -> IntArray:
        """Return the jobs on these devices, ascending."""
        here = self._holder[:, devices]
        return np.unique(here[here >= 0])

    def devices(self, job: int) -> IntArray:
        """Return the devices that a job holds."""
        return self._gangs[job] if self._device[job] < 0 else self._device[[job]]

    def devices_of(self, jobs: IntArray) -> IntArray:
        """Return the devices that these jobs hold, one after another."""
        device = self._device[jobs]
        gangs = [self._gangs[job] for job in jobs[device < 0].tolist()]
        return np.concatenate([device[device >= 0], *gangs]) if gangs else device

    def partners_of(self, job: int) -> list[int]:
        """Return the jobs that share a device with a job, ascending."""
        on_same = set(self._holder[:, self.devices(job)].ravel().tolist())
        return sorted(on_same - {job, -1})

    def portion(self, job: int) -> float:
        """Return the number of devices that a job holds; a device shared by n jobs counts 1/n."""
        jobs_on = (self._holder[:, self.devices(job)] >= 0).sum(axis=0)
        return float(sum(1 / n for n in jobs_on.tolist()))

    def _add_gang(self, job: int, devices: IntArray) -> None:
        self._device[job] = -1
        self._gangs[job] = devices
