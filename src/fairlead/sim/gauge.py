"""What jobs in the virtual cluster measure of themselves, and how busy they keep their devices."""

from fairlead.model.events import Measured
from fairlead.sim.record import Record
from fairlead.sim.truth import Truth


class Gauge:
    """Reads off a job's speed what it would report of itself."""

    def __init__(self, truth: Truth, record: Record) -> None:
        self._truth = truth
        self._laws = truth.laws
        self._record = record

    def report(
        self, at: float, lease: int, job: int, rate: float, kind: int, size: int
    ) -> Measured:
        """Return what a job measures that makes ``rate`` steps per second on so many devices."""
        if self._laws is None:
            own = self._record.jobs[job]
            return Measured(at, lease, rate, own.utilization, own.memory_gib)
        busy = self._busy(job, rate, kind, size)
        return Measured(at, lease, rate, busy, self._laws.memory_gib(job))

    def note_use(
        self, job: int, start: float, end: float, rate: float, kind: int, size: int
    ) -> None:
        """Note how busy a job has kept its devices at this speed."""
        assert self._record.use is not None
        busy = self._busy(job, rate, kind, size) or 0.0
        self._record.use.add(start, end, busy * size)

    def _busy(self, job: int, rate: float, kind: int, size: int) -> float | None:
        """Return how busy a job keeps each of its devices; it is less so the slower it runs."""
        assert self._laws is not None
        alone = self._laws.utilization(job)
        if alone is None:
            return None
        best = self._truth.best(job, kind, size)
        return alone * rate / best if best else 0.0
