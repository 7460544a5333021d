"""What jobs in the virtual cluster measure of themselves, and how busy they keep their devices."""

from fairlead.model.arrays import IntArray
from fairlead.model.events import Measured
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import Record


class Gauge:
    """Reads off a job's speed what it would report of itself."""

    def __init__(self, truth: Truth, pace: JobProgress, record: Record) -> None:
        self._truth = truth
        self._laws = truth.laws
        self._pace = pace
        self._record = record

    def measured(self, at: float) -> list[Measured]:
        """Return what running jobs have measured of themselves by now."""
        job = self._pace.running()
        job = job[self._pace.works_from[job] < at]
        return [self._report(at, number) for number in job.tolist()]

    def _report(self, at: float, job: int) -> Measured:
        lease, rate = int(self._pace.lease[job]), float(self._pace.rate[job])
        if self._laws is None:
            own = self._record.jobs[job]
            return Measured(at, lease, rate, own.utilization, own.memory_gib)
        return Measured(at, lease, rate, self._busy(job), self._laws.memory_gib(job))

    def record_utilization(self, job: IntArray, at: float) -> None:
        """Note how busy jobs have kept their devices at their present speed until now."""
        assert self._record.use is not None
        for number in job.tolist():
            busy = (self._busy(number) or 0.0) * int(self._pace.size[number])
            self._record.use.add(float(self._pace.works_from[number]), at, busy)

    def _busy(self, job: int) -> float | None:
        """Return how busy a job keeps each of its devices; it is less so the slower it runs."""
        assert self._laws is not None
        alone = self._laws.utilization(job)
        if alone is None:
            return None
        kind = int(self._pace.entry[job]) % len(self._truth.cluster.accelerators)
        best = self._truth.best(job, kind, int(self._pace.size[job]))
        return alone * float(self._pace.rate[job]) / best if best else 0.0
