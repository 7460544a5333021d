"""Speeds that the scheduler learns during a simulation, as it does on a live cluster."""

import math

import numpy as np

from fairlead.core.queries import Queries
from fairlead.model.events import Measured, SpeedMeasured
from fairlead.model.speeds.key import SpeedKey

_SAME = 0.05
"""relative difference up to which a measured speed changes nothing, as on a live cluster"""


class SpeedLearning:
    """Turns the speeds of running jobs into measured speeds of their workloads.

    A lease is measured once, when it has run for a while; the mean over all leases of a workload
    with the same gang and accelerator is believed. Packed jobs and mixed gangs are left out.
    """

    def __init__(self, queries: Queries, noise: float, seed: int) -> None:
        self._queries, self._noise = queries, noise
        self._rng = np.random.default_rng(seed)
        self._counted: set[int] = set()
        self._sums: dict[SpeedKey, tuple[float, int]] = {}
        """sum of the logarithms of measured speeds, and their number"""

    def events(self, reports: list[Measured]) -> list[SpeedMeasured]:
        """Return the speeds that the reports change."""
        running = {report.lease for report in reports}
        self._counted &= running
        changed: dict[SpeedKey, float] = {}
        for report in reports:
            if report.lease in self._counted or report.steps_per_s <= 0.0:
                continue
            self._counted.add(report.lease)
            key = self._key(report.lease)
            if key is not None:
                changed[key] = self._average(key, report.steps_per_s)
        return [
            SpeedMeasured(reports[0].at, key.workload, key.gang, key.accelerator, speed)
            for key, speed in changed.items()
            if self._differs(key, speed)
        ]

    def _average(self, key: SpeedKey, steps_per_s: float) -> float:
        """Add a measurement with its noise; return the mean of all."""
        total, count = self._sums.get(key, (0.0, 0))
        total += math.log(steps_per_s)
        if self._noise:
            total += self._noise * float(self._rng.standard_normal())
        self._sums[key] = total, count + 1
        return math.exp(total / (count + 1))

    def _key(self, lease: int) -> SpeedKey | None:
        """Return the workload, gang and accelerator of a lease; None unless it runs alone."""
        shared = self._queries.shared_devices(lease)
        if shared is None or shared.partners or len(set(shared.accelerators)) != 1:
            return None
        workload = self._queries.measured_workload(self._queries.job_number(shared.job_id))
        return SpeedKey(workload, len(shared.accelerators), shared.accelerators[0])

    def _differs(self, key: SpeedKey, speed: float) -> bool:
        believed = self._queries.believed_speed(key)
        if believed.source == "assumed":
            return True
        return abs(speed - believed.steps_per_s) > _SAME * believed.steps_per_s
