"""What a simulation notes down about each job while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job

FIRST_STEPS = 100
"""early feedback is the time to so many steps (Gandiva §6.3)"""


@dataclass(eq=False)
class Record:
    """Columns over the jobs of a trace, and the counters of a run."""

    jobs: Sequence[Job]
    device_s: FloatArray
    """jobs × accelerators: devices held × seconds, one shared by n jobs counting 1/n for each"""
    started_at: FloatArray
    finished_at: FloatArray
    first_steps_at: FloatArray
    preemptions: IntArray
    migrations: IntArray
    ended_at: float = 0.0
    """when the last thing happened; plans that start nothing, after all else, do not count"""
    rounds: int = 0
    solves: int = 0
    intervals: "Intervals | None" = None
    use: "Use | None" = None
    """how busy jobs kept their devices; only under physics"""

    @classmethod
    def of(cls, jobs: Sequence[Job], n_accelerators: int, *, intervals: bool) -> "Record":
        """Return an empty record for these jobs."""
        n = len(jobs)
        return cls(
            jobs,
            np.zeros((n, n_accelerators)),
            np.full(n, np.nan),
            np.full(n, np.nan),
            np.full(n, np.nan),
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=np.int64),
            intervals=Intervals() if intervals else None,
        )


@dataclass(eq=False)
class Intervals:
    """Who held what when: one entry for every lease that ended."""

    _parts: list[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]] = field(
        default_factory=list
    )

    def add(
        self, job: IntArray, device: IntArray, devices: IntArray, start: FloatArray, end: float
    ) -> None:
        """Note leases that ended; ``device`` is the first one held, ``devices`` how many."""
        self._parts.append((job, device, devices, start, np.full(len(job), end)))

    def columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        """Return job, first device, number of devices, start and end of every lease."""
        if not self._parts:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none, np.zeros(0), np.zeros(0)
        job, device, devices, start, end = zip(*self._parts, strict=True)
        return (
            np.concatenate(job),
            np.concatenate(device),
            np.concatenate(devices),
            np.concatenate(start),
            np.concatenate(end),
        )


@dataclass(eq=False)
class Use:
    """How busy devices were kept: one entry for every time at one speed."""

    _parts: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, start: float, end: float, devices: float) -> None:
        """Note that a job kept so many devices' worth of work busy from start to end."""
        if end > start and devices:
            self._parts.append((start, end, devices))

    def mean(self, first_at: float, last_at: float) -> float:
        """Return how many devices were busy on average between two instants."""
        start, end, devices = np.array(self._parts or [(0.0, 0.0, 0.0)]).T
        time = np.clip(end, first_at, last_at) - np.clip(start, first_at, last_at)
        return float((time * devices).sum() / (last_at - first_at))
