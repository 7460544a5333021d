"""What jobs in the virtual cluster have done, entered into the record."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placements
from fairlead.sim.cluster.measurements import Gauge
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.record import FIRST_STEPS, Record


class Ledger:
    """Credits jobs with steps and with the time for which they held devices."""

    def __init__(self, cluster: Cluster, pace: JobProgress, record: Record, gauge: Gauge) -> None:
        self._cluster = cluster
        self._pace = pace
        self._record = record
        self._gauge = gauge
        self._device_s = record.device_s.reshape(-1)
        self._mixed: dict[int, FloatArray] = {}
        """jobs on several accelerators → part of its devices on each"""
        self._early = len(record.jobs)
        """jobs that have not made their first steps"""

    def note_gangs(self, units: Placements) -> None:
        """Note which gangs have devices of several accelerators, and how many of each."""
        kind = self._cluster.accelerator_of[units.device]
        first = units.start[:-1]
        alike = np.logical_and.reduceat(kind == kind[first].repeat(units.size), first)
        for number in units.job[alike].tolist() if self._mixed else ():
            self._mixed.pop(number, None)
        for i in (~alike).nonzero()[0].tolist():
            mine = kind[units.start[i] : units.start[i + 1]]
            counts = np.bincount(mine, minlength=len(self._cluster.accelerators))
            self._mixed[int(units.job[i])] = counts / len(mine)

    def enter(self, job: IntArray, at: float, after: FloatArray) -> None:
        """Credit jobs with what they have done and held until now, ``after`` being their steps."""
        pace = self._pace
        if self._early:
            self._note_first_steps(job, after)
        held = (at - pace.held_from[job]) * pace.portion[job]
        if self._mixed:
            for i, number in enumerate(job.tolist()):
                if number in self._mixed:
                    self._record.device_s[number] += held[i] * self._mixed[number]
                    held[i] = 0.0
        self._device_s[pace.entry[job]] += held
        if self._record.use is not None:
            self._gauge.record_utilization(job, at)
        pace.done[job] = after

    def _note_first_steps(self, job: IntArray, after: FloatArray) -> None:
        pace, record = self._pace, self._record
        done = pace.done[job]
        if done[done.argmin()] >= FIRST_STEPS:
            return  # they made them before, or their copies did
        goal = np.minimum(FIRST_STEPS, pace.total[job])
        crossed = (after >= goal) & np.isnan(record.first_steps_at[job])
        count = np.count_nonzero(crossed)
        if count:
            self._early -= int(count)
            mine = job[crossed]
            time = (goal[crossed] - done[crossed]) / pace.rate[mine]
            record.first_steps_at[mine] = pace.works_from[mine] + time
