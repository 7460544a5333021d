"""How fast jobs really run in the virtual cluster: kept outside what the scheduler sees."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.speeds import Placement, SpeedTable


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
        self._beside: dict[tuple[str, bool, tuple[int, ...], str | None], float] = {}
        """speeds found so far by workload, whether spread, accelerators of the devices, partner"""

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
        on = tuple(self._cluster.accelerator_of[devices].tolist())
        spread = len(on) > 1 and len(set(self._cluster.node_of[devices].tolist())) > 1
        return self._slowest(job, spread, on, partners)

    def speed_in(
        self, job: int, accelerator: int, placement: Placement | None, partners: Sequence[int]
    ) -> float:
        """Return the steps per second of a job on one accelerator beside its partners.

        Without a placement it is consolidated.
        """
        on = (accelerator,) * self._jobs[job].gang
        return self._slowest(job, placement == "spread", on, partners)

    def _slowest(
        self, job: int, spread: bool, on: tuple[int, ...], partners: Sequence[int]
    ) -> float:
        workload = self._jobs[job].workload
        if not partners:
            return self._one_beside(workload, spread, on, None)
        others = {self._jobs[partner].workload for partner in partners}
        return min(self._one_beside(workload, spread, on, other) for other in others)

    def _one_beside(
        self, workload: str, spread: bool, on: tuple[int, ...], partner: str | None
    ) -> float:
        key = (workload, spread, on, partner)
        found = self._beside.get(key)
        if found is None:
            kinds = [self._cluster.accelerators[kind] for kind in on]
            found = self._beside[key] = self._speeds.speed(
                workload,
                kinds,
                placement="spread" if spread else "consolidated",
                partner=partner,
            )
        return found
