"""Accounting of the virtual cluster: steps and device time of jobs, written to the record."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.sim.cluster.measurements import SelfMeasurement
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.record import FIRST_STEPS, Record


class ProgressLedger:
    """Credits jobs with steps and device time."""

    def __init__(
        self, cluster: Cluster, progress: JobProgress, record: Record, measurement: SelfMeasurement
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._record = record
        self._measurement = measurement
        self._device_s = record.device_s.reshape(-1)
        self._mixed: dict[int, FloatArray] = {}
        """jobs on several accelerators → accelerators → fraction of the job's devices"""
        self.early = len(record.jobs)
        """number of jobs that have not made their first steps"""

    @property
    def has_mixed_gangs(self) -> bool:
        """Whether a gang has devices of several accelerators."""
        return bool(self._mixed)

    def record_mixed_gangs(self, units: Placements) -> None:
        """Record the gangs with devices of several accelerators."""
        on = self._cluster.accelerator_of[units.device]
        first = units.start[:-1]
        uniform = np.logical_and.reduceat(on == on[first].repeat(units.size), first)
        for number in units.job[uniform].tolist() if self._mixed else ():
            self._mixed.pop(number, None)
        for i in (~uniform).nonzero()[0].tolist():
            gang_on = on[units.start[i] : units.start[i + 1]]
            counts = np.bincount(gang_on, minlength=len(self._cluster.accelerators))
            self._mixed[int(units.job[i])] = counts / len(gang_on)

    def credit(self, job: IntArray, at: float, after: FloatArray) -> None:
        """Credit jobs with their device time so far; ``after`` are the steps they have made."""
        progress = self._progress
        if self.early:
            self._record_first_steps(job, after)
        held = (at - progress.held_from[job]) * progress.portion[job]
        if self._mixed:
            for i, number in enumerate(job.tolist()):
                if number in self._mixed:
                    self._record.device_s[number] += held[i] * self._mixed[number]
                    held[i] = 0.0
        self._device_s[progress.entry[job]] += held
        if self._record.utilization_log is not None:
            self._measurement.record_utilization(job, at)
        progress.done[job] = after

    def _record_first_steps(self, job: IntArray, after: FloatArray) -> None:
        progress, record = self._progress, self._record
        done = progress.done[job]
        if done[done.argmin()] >= FIRST_STEPS:
            return  # all jobs, or copies of them, have made their first steps before
        goal = np.minimum(FIRST_STEPS, progress.total[job])
        crossed = (after >= goal) & np.isnan(record.first_steps_at[job])
        count = np.count_nonzero(crossed)
        if count:
            self.early -= int(count)
            reached = job[crossed]
            time = (goal[crossed] - done[crossed]) / progress.rate[reached]
            record.first_steps_at[reached] = progress.progress_from[reached] + time
