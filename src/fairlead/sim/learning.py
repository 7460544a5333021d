"""Speeds that the scheduler learns during a simulation, as it does on a live cluster."""

import math
from dataclasses import replace

import numpy as np

from fairlead.core.queries import Queries
from fairlead.model.events import JobsMeasured, SpeedMeasured
from fairlead.model.speeds.key import SpeedKey

_SAME = 0.05
"""relative difference up to which a measured speed changes nothing, as on a live cluster"""


class SpeedLearning:
    """Turns the speeds of running jobs into measured speeds of their workloads.

    A lease is measured once, when it has run for a while; the mean over all leases of a workload
    with the same gang and accelerator is believed. A packed job measures the speed of the pair.
    Mixed gangs and devices with more than two jobs are left out.
    """

    def __init__(self, queries: Queries, noise: float, seed: int) -> None:
        self._queries, self._noise = queries, noise
        self._rng = np.random.default_rng(seed)
        self._report_rng = np.random.default_rng((seed, 1))
        self._counted: set[tuple[int, str | None]] = set()
        """leases that were measured, each with its partner's workload"""
        self._sums: dict[SpeedKey, tuple[float, int]] = {}
        """sum of the logarithms of measured speeds, and their number"""

    def reported(self, measured: JobsMeasured) -> JobsMeasured:
        """Return the reports of jobs to a mechanism that reads them, each with its own error."""
        if not self._noise:
            return measured
        error = self._noise * self._report_rng.standard_normal(len(measured.steps_per_s))
        return replace(measured, steps_per_s=measured.steps_per_s * np.exp(error))

    def events(self, measured: JobsMeasured) -> list[SpeedMeasured]:
        """Return the speeds that the measurements change."""
        leases = measured.lease.tolist()
        running = set(leases)
        self._counted = {one for one in self._counted if one[0] in running}
        changed: dict[SpeedKey, float] = {}
        never_packed = not self._queries.has_packed
        for lease, steps_per_s in zip(leases, measured.steps_per_s.tolist(), strict=True):
            if steps_per_s <= 0.0 or (never_packed and (lease, None) in self._counted):
                continue
            key = self._queries.speed_key(lease)
            if key is not None and (lease, key.partner) not in self._counted:
                self._counted.add((lease, key.partner))
                changed[key] = self._average(key, steps_per_s)
        return [
            SpeedMeasured.of(measured.at, key, speed)
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

    def _differs(self, key: SpeedKey, speed: float) -> bool:
        if key.partner is not None:
            beside = self._queries.believed_pair_speed(key)
            return beside is None or abs(speed - beside) > _SAME * beside
        believed = self._queries.believed_speed(key)
        if believed.source == "assumed":
            return True
        return abs(speed - believed.steps_per_s) > _SAME * believed.steps_per_s
