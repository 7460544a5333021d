"""Measured costs of restarts: the time for which a job holds devices before it makes progress."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import ProtocolError

_RECENT = 100
"""measurements over which the mean is taken"""


class RestartCosts:
    """The last measured cost of each job, and the recent mean for jobs without one."""

    def __init__(self) -> None:
        self._seconds: FloatArray = np.zeros(0)
        """jobs → seconds, NaN for none; shorter than the table if the last jobs have none"""
        self._count = 0
        self._mean_s = 0.0

    def record(self, job: int, seconds: float) -> None:
        """Keep the cost of a job's last restart."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ProtocolError(f"seconds: {seconds} not allowed: expected 0 or more")
        if job >= len(self._seconds):
            more = np.full(max(job + 1 - len(self._seconds), len(self._seconds)), np.nan)
            self._seconds = np.concatenate([self._seconds, more])
        self._seconds[job] = seconds
        self._count += 1
        self._mean_s += (seconds - self._mean_s) / min(self._count, _RECENT)

    def of(self, jobs: IntArray) -> FloatArray:
        """Return jobs → seconds; the mean of recent restarts for a job without one, or else 0."""
        seconds = np.full(len(jobs), np.nan)
        known = jobs < len(self._seconds)
        seconds[known] = self._seconds[jobs[known]]
        return np.where(np.isnan(seconds), self._mean_s, seconds)

    def saved(self) -> dict[str, object]:
        """Return the content, for ``restore``; empty before the first measurement."""
        if not self._count:
            return {}
        return {"seconds": self._seconds, "count": self._count, "mean_s": self._mean_s}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the content that ``saved`` returned."""
        if saved:
            self._seconds = np.array(saved["seconds"])
            self._count, self._mean_s = saved["count"], saved["mean_s"]
