"""How fast jobs really run in the virtual cluster: kept outside what the scheduler sees."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.plan import Assignments
from fairlead.model.speeds import SpeedTable


class Truth:
    """True speeds of a trace's jobs on a cluster's devices."""

    def __init__(self, cluster: Cluster, speeds: SpeedTable, jobs: Sequence[Job]) -> None:
        self._cluster = cluster
        self._speeds = speeds
        self._jobs = jobs
        kinds = cluster.accelerators
        index: dict[tuple[str, int], int] = {}
        rows: list[FloatArray] = []
        row_of = np.zeros(len(jobs), dtype=np.int64)
        for number, job in enumerate(jobs):
            key = (job.workload, job.gang)
            if key not in index:
                index[key] = len(rows)
                rows.append(speeds.row(*key, kinds))
            row_of[number] = index[key]
        self._row_of = row_of
        self._alone: FloatArray = np.array(rows).reshape(len(rows), len(kinds))
        self._spread: FloatArray = np.array(
            [
                [speeds.speed(w, (kind,) * gang, placement="spread") for kind in kinds]
                for w, gang in index
            ]
        ).reshape(self._alone.shape)
        self._placement_matters = not np.array_equal(self._alone, self._spread)

    def alone(self) -> FloatArray:
        """jobs × accelerators → steps per second, consolidated and without a partner."""
        return self._alone[self._row_of]

    def speed(self, units: Assignments) -> FloatArray:
        """Return units × width: the steps per second of each member on the unit's devices."""
        kind = self._cluster.accelerator_of[units.device]
        first = units.start[:-1]
        rate: FloatArray = self._alone[self._row_of[units.members], kind[first][:, None]]
        special = np.zeros(len(units), dtype=bool)
        if units.device.size > len(units):
            size = units.size
            special |= ~np.logical_and.reduceat(kind == np.repeat(kind[first], size), first)
            if self._placement_matters:
                node = self._cluster.node_of[units.device]
                special |= ~np.logical_and.reduceat(node == np.repeat(node[first], size), first)
        if units.members.shape[1] > 1:
            special |= (units.members >= 0).sum(axis=1) > 1
        for u in np.flatnonzero(special).tolist():
            rate[u] = self._slowest(units, u)
        return np.where(units.members >= 0, rate, 0.0)

    def _slowest(self, units: Assignments, u: int) -> list[float]:
        devices: IntArray = units.device[units.start[u] : units.start[u + 1]]
        kinds = [self._cluster.accelerators[k] for k in self._cluster.accelerator_of[devices]]
        nodes = set(self._cluster.node_of[devices].tolist())
        members = [m for m in units.members[u].tolist() if m >= 0]
        rates = [0.0] * units.members.shape[1]
        for column, member in enumerate(units.members[u].tolist()):
            if member < 0:
                continue
            partners = [self._jobs[m].workload for m in members if m != member]
            rates[column] = min(
                self._speeds.speed(
                    self._jobs[member].workload,
                    kinds,
                    placement="spread" if len(nodes) > 1 else "consolidated",
                    partner=partner,
                )
                for partner in (partners or [None])
            )
        return rates
