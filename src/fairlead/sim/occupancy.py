"""Device occupancy over time, recorded from the events of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.mechanisms.base import Mechanism
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch
from fairlead.model.events import Event, LeasesEnded
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Columns over holdings, one per device and lease, in order of start."""

    job: IntArray
    device: IntArray
    start: FloatArray
    end: FloatArray
    jobs: tuple[Job, ...]
    """all jobs of the trace, by number"""
    finished_at: FloatArray
    """jobs → finish time; NaN if unfinished"""

    @property
    def begin(self) -> float:
        """The arrival time of the first job."""
        return min(job.arrival_at for job in self.jobs)

    @property
    def until(self) -> float:
        """The end of the last holding."""
        return float(self.end.max(initial=self.begin))


class TimelineRecorder:
    """Records leases with a second scheduler that handles the same events.

    The events of a run do not name the devices of a lease. A scheduler that handles the same
    events returns the same launch commands, without solving anything: plans are events.
    """

    def __init__(self, cluster: Cluster, beliefs: SpeedTable, mechanism: Mechanism[Any]) -> None:
        self._scheduler: Scheduler[Any] = Scheduler(cluster, beliefs, mechanism)
        self._open: dict[int, tuple[int, list[int], float]] = {}
        """lease → job, devices, start"""
        self._rows: list[tuple[int, int, float, float]] = []
        self._at = 0.0

    def __call__(self, event: Event) -> None:
        """Handle the next event of the run."""
        self._at = event.at
        if isinstance(event, LeasesEnded):
            for lease in event.lease.tolist():
                self._close(lease)
        for command in self._scheduler.handle(event):
            if isinstance(command, Launch):
                for lease, run in zip(command.lease.tolist(), command.on, strict=True):
                    self._open[lease] = run.job, list(run.devices), event.at

    def _close(self, lease: int) -> None:
        job, devices, start = self._open.pop(lease)
        if self._at > start:
            self._rows += [(job, device, start, self._at) for device in devices]

    def timeline(self, jobs: Sequence[Job], finished_at: FloatArray) -> Timeline:
        """Return the recorded timeline; open leases count until the last event."""
        for lease in list(self._open):
            self._close(lease)
        rows = sorted(self._rows, key=lambda row: (row[2], row[1], row[0]))
        job, device, start, end = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return Timeline(
            job.astype(np.int64), device.astype(np.int64), start, end, tuple(jobs), finished_at
        )
