"""Costs of restarts that jobs in the virtual cluster measure."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.events import RestartMeasured
from fairlead.model.job import Job


class RestartMeasurement:
    """Keeps the cost of every job's last restart; reports only those that have changed."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._known_s = np.zeros(len(jobs))
        """jobs → seconds reported last; a job that loses no time need not report"""
        self._changed: dict[int, float] = {}

    def record(self, job: IntArray, seconds: FloatArray) -> None:
        """Keep the costs of restarts that begin now."""
        changed = seconds != self._known_s[job]
        if np.count_nonzero(changed):
            self._known_s[job[changed]] = seconds[changed]
            self._changed |= zip(job[changed].tolist(), seconds[changed].tolist(), strict=True)

    def events(self, at: float) -> list[RestartMeasured]:
        """Return the costs that have changed since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return [RestartMeasured(at, self._jobs[job].id, s) for job, s in changed.items()]
