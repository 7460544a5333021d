"""Record of a simulation: columns over jobs, and counters."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.job import Job

FIRST_STEPS = 100
"""number of steps whose completion counts as early feedback (Gandiva §6.3)"""


@dataclass(eq=False)
class Record:
    """Columns over the jobs of a trace, and the counters of a run."""

    jobs: Sequence[Job]
    device_s: FloatArray
    """jobs × accelerators → device-seconds; a device shared by n jobs counts 1/n for each"""
    started_at: FloatArray
    finished_at: FloatArray
    first_steps_at: FloatArray
    preemptions: IntArray
    migrations: IntArray
    ended_at: float = 0.0
    """time of the last event; final plans that start nothing do not count"""
    rounds: int = 0
    solves: int = 0
    intervals: "LeaseIntervals | None" = None
    utilization_log: "UtilizationLog | None" = None
    """utilization of the devices; only under physics"""

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
            intervals=LeaseIntervals() if intervals else None,
        )


@dataclass(eq=False)
class LeaseIntervals:
    """Ended leases, one entry each: job, devices, start and end."""

    _parts: list[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]] = field(
        default_factory=list
    )

    def add(
        self, job: IntArray, device: IntArray, devices: IntArray, start: FloatArray, end: float
    ) -> None:
        """Add ended leases; ``device`` is the first device of each, ``devices`` their number."""
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
class UtilizationLog:
    """Utilization of devices, one entry per interval at constant speed."""

    _parts: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, start: float, end: float, devices: float) -> None:
        """Add an interval in which a job kept this many devices busy."""
        if end > start and devices:
            self._parts.append((start, end, devices))

    def mean(self, first_at: float, last_at: float) -> float:
        """Return the average number of busy devices between two instants."""
        start, end, devices = np.array(self._parts or [(0.0, 0.0, 0.0)]).T
        time = np.clip(end, first_at, last_at) - np.clip(start, first_at, last_at)
        return float((time * devices).sum() / (last_at - first_at))
