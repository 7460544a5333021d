"""Measurements that jobs in the virtual cluster report: speed, utilization and memory."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.events import JobsMeasured
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record


class SelfMeasurement:
    """Derives the measurements of jobs from their speeds."""

    def __init__(self, true_speeds: TrueSpeeds, progress: JobProgress, record: Record) -> None:
        self._true_speeds = true_speeds
        self._physics = true_speeds.physics_model
        self._progress = progress
        self._record = record
        declared = [(job.utilization, job.memory_gib) for job in record.jobs]
        self.declared = np.array(declared, dtype=np.float64).reshape(-1, 2)
        """jobs → utilization and memory that the trace says; NaN where it does not"""

    def measured(self, at: float) -> JobsMeasured:
        """Return the measurements of all running jobs."""
        job = self._progress.running()
        job = job[self._progress.progress_from[job] < at]
        known = self.declared[job]
        if self._physics is not None:
            memory_gib = self._physics.memory_gib
            own = [(self._busy(number), memory_gib(number)) for number in job.tolist()]
            known = np.array(own, dtype=np.float64).reshape(-1, 2)
        utilization, memory = known.T
        lease, rate = self._progress.lease[job], self._progress.rate[job]
        return JobsMeasured(at, lease, rate, utilization, memory)

    def record_utilization(self, job: IntArray, at: float) -> None:
        """Log the utilization of the jobs' devices since their speed last changed."""
        assert self._record.utilization_log is not None
        for number in job.tolist():
            busy = (self._busy(number) or 0.0) * int(self._progress.size[number])
            self._record.utilization_log.add(float(self._progress.progress_from[number]), at, busy)

    def _busy(self, job: int) -> float | None:
        """Return the utilization of a job's devices at its current speed; None if unknown."""
        assert self._physics is not None
        alone = self._physics.utilization(job)
        if alone is None:
            return None
        accelerator = int(self._progress.entry[job]) % len(self._true_speeds.cluster.accelerators)
        best = self._true_speeds.best(job, accelerator, int(self._progress.size[job]))
        return alone * float(self._progress.rate[job]) / best if best else 0.0
