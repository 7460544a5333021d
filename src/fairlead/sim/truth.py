"""How fast jobs really run in the virtual cluster: kept outside what the scheduler sees."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.speeds import SpeedTable


class Truth:
    """True speeds of a trace's jobs on a cluster's devices."""

    def __init__(self, cluster: Cluster, speeds: SpeedTable, jobs: Sequence[Job]) -> None:
        self._cluster = cluster
        self._speeds = speeds
        self._jobs = jobs
        kinds = cluster.accelerators
        index: dict[tuple[str, int], int] = {}
        self._row_of: IntArray = np.array(
            [index.setdefault((job.workload, job.gang), len(index)) for job in jobs],
            dtype=np.int64,
        )
        self._alone: FloatArray = np.array([speeds.row(*key, kinds) for key in index])
        spread = [
            [speeds.speed(w, (kind,) * gang, placement="spread") for kind in kinds]
            for w, gang in index
        ]
        self._placement_matters = not np.array_equal(self._alone, np.array(spread))

    def alone(self) -> FloatArray:
        """jobs × accelerators → steps per second, consolidated and without a partner."""
        return self._alone[self._row_of]

    def speed(self, units: Placements) -> FloatArray:
        """Return placements → steps per second of a job alone on its devices."""
        first = units.start[:-1]
        kind = self._cluster.accelerator_of[units.device]
        rate: FloatArray = self._alone[self._row_of[units.job], kind[first]]
        if len(units.device) == len(units):
            return rate
        size = units.start[1:] - first
        special = ~np.logical_and.reduceat(kind == kind[first].repeat(size), first)
        if self._placement_matters:
            node = self._cluster.node_of[units.device]
            special |= ~np.logical_and.reduceat(node == node[first].repeat(size), first)
        for i in special.nonzero()[0].tolist():
            devices = units.device[units.start[i] : units.start[i + 1]]
            rate[i] = self.speed_with(int(units.job[i]), devices, ())
        return rate

    def speed_with(self, job: int, devices: IntArray, partners: Sequence[int]) -> float:
        """Return the steps per second of a job on these devices beside its partners.

        Of several partners the one that slows it most decides.
        """
        kinds = [self._cluster.accelerators[k] for k in self._cluster.accelerator_of[devices]]
        spread = len(set(self._cluster.node_of[devices].tolist())) > 1
        others: list[str | None] = [self._jobs[partner].workload for partner in partners]
        return min(
            self._speeds.speed(
                self._jobs[job].workload,
                kinds,
                placement="spread" if spread else "consolidated",
                partner=other,
            )
            for other in others or [None]
        )
