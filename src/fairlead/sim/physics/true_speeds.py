"""How fast jobs really run in the virtual cluster: kept outside what the scheduler sees."""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.speeds.table import Placement, SpeedKey, SpeedTable
from fairlead.sim.physics.effects import Physics
from fairlead.sim.physics.model import PhysicsModel


class Truth:
    """True speeds of a trace's jobs on a cluster's devices, under physics where there is one."""

    def __init__(
        self,
        cluster: Cluster,
        speeds: SpeedTable,
        jobs: Sequence[Job],
        physics: Physics | None = None,
    ) -> None:
        self.laws = None if physics is None else PhysicsModel(physics, cluster, jobs)
        self.cluster = cluster
        self._speeds = speeds
        self._jobs = jobs
        kinds = cluster.accelerators
        index: dict[tuple[object, ...], int] = {}
        self._row_of: IntArray = np.array(
            [index.setdefault(_shape(job), len(index)) for job in jobs], dtype=np.int64
        )
        each = {_shape(job): job for job in reversed(jobs)}
        self._alone: FloatArray = np.array([speeds.row_of(each[key], kinds) for key in index])
        spread = [
            [
                speeds.speed(job.workload, (kind,) * job.gang_on(kind), placement="spread")
                for kind in kinds
            ]
            for job in (each[key] for key in index)
        ]
        self._placement_matters = not np.array_equal(self._alone, np.array(spread))
        self._gang: IntArray = np.array([job.gang for job in jobs], dtype=np.int64)
        sizes = {(job.min_gang or job.gang, job.max_gang or job.gang, job.gang) for job in jobs}
        self._elastic = any(least != most or least != gang for least, most, gang in sizes)
        self._in_entry = self.alone().reshape(-1)
        self._beside: dict[tuple[str, bool, tuple[int, ...], str | None], float] = {}
        """speeds found so far by workload, whether spread, accelerators of the devices, partner"""

    def entry(self, units: Placements) -> IntArray:
        """Return placements → its place in a flat table of jobs × accelerators.

        Of a gang on several accelerators that of its first device counts.
        """
        kind = self.cluster.accelerator_of[units.first]
        entry: IntArray = units.job * self._alone.shape[1] + kind
        return entry

    def alone(self) -> FloatArray:
        """jobs × accelerators → steps per second, consolidated and without a partner."""
        return self._alone[self._row_of]

    def speed(self, units: Placements, entry: IntArray) -> FloatArray:
        """Return placements → steps per second of a job alone on its devices.

        ``entry`` is that of the placements.
        """
        rate: FloatArray = self._in_entry[entry]
        if self.laws is not None:
            special = np.ones(len(units), dtype=bool)
        elif units.single and not self._elastic:
            return rate
        else:
            first = units.start[:-1]
            kind = self.cluster.accelerator_of[units.device]
            size = units.start[1:] - first
            special = ~np.logical_and.reduceat(kind == kind[first].repeat(size), first)
            if self._placement_matters:
                node = self.cluster.node_of[units.device]
                special |= ~np.logical_and.reduceat(node == node[first].repeat(size), first)
            if self._elastic:
                special |= size != self._gang[units.job]
        for i in special.nonzero()[0].tolist():
            devices = units.device[units.start[i] : units.start[i + 1]]
            rate[i] = self.speed_with(int(units.job[i]), devices, ())
        return rate

    def speed_with(
        self,
        job: int,
        devices: IntArray,
        partners: Sequence[int],
        neighbours: Iterable[tuple[int, IntArray]] = (),
    ) -> float:
        """Return the steps per second of a job on these devices beside its partners.

        Of several partners the one that slows it most decides, unless physics says what packing
        does. ``neighbours`` are jobs on other devices of the same nodes, with their devices.
        """
        on = tuple(self.cluster.accelerator_of[devices].tolist())
        spread = len(on) > 1 and len(set(self.cluster.node_of[devices].tolist())) > 1
        laws = self.laws
        if laws is None:
            return self._slowest(job, spread, on, partners)
        if not laws.fits((job, *partners), devices):
            return 0.0
        keeps = 1.0
        if partners and "packing" in laws.effects and not self._measured(job, on, partners):
            keeps = laws.packed((job, *partners))
            partners = ()
        keeps *= laws.locality(job, devices, spread_known=spread and self._measured_spread(job))
        if laws.crowded:
            keeps *= laws.crowd(job, devices, neighbours)
        return keeps * self._slowest(job, spread, on, partners)

    def speed_on(
        self, job: int, accelerator: int, placement: Placement | None, partners: Sequence[int]
    ) -> float:
        """Return the steps per second of a job on one accelerator beside its partners.

        Without a placement it is consolidated.
        """
        mine = self._jobs[job]
        on = (accelerator,) * mine.gang_on(self.cluster.accelerators[accelerator])
        return self._slowest(job, placement == "spread", on, partners)

    def best(self, job: int, kind: int, size: int) -> float:
        """Return the steps per second of so large a gang at its best on one accelerator."""
        return self._slowest(job, False, (kind,) * size, ())

    def _slowest(
        self, job: int, spread: bool, on: tuple[int, ...], partners: Sequence[int]
    ) -> float:
        workload, gang = self._jobs[job].workload, self._jobs[job].gang
        if self._jobs[job].gangs:
            gang = self._jobs[job].gang_on(self.cluster.accelerators[on[0]])
        if len(on) != gang and len(on) not in self._speeds.gangs[workload]:
            # An elastic gang of a size that was not measured, scaled from its own size.
            power = 1.0 if self.laws is None else self.laws.nature(job).scaling
            of_kind = [self._slowest(job, spread, (kind,) * gang, partners) for kind in set(on)]
            return min(of_kind) * float((len(on) / gang) ** power)
        if not partners:
            return self._speed_beside_one(workload, spread, on, None)
        others = {self._jobs[partner].workload for partner in partners}
        return min(self._speed_beside_one(workload, spread, on, other) for other in others)

    def _speed_beside_one(
        self, workload: str, spread: bool, on: tuple[int, ...], partner: str | None
    ) -> float:
        key = (workload, spread, on, partner)
        found = self._beside.get(key)
        if found is None:
            kinds = [self.cluster.accelerators[kind] for kind in on]
            found = self._beside[key] = self._speeds.speed(
                workload,
                kinds,
                placement="spread" if spread else "consolidated",
                partner=partner,
            )
        return found

    def _measured(self, job: int, on: tuple[int, ...], partners: Sequence[int]) -> bool:
        """Tell whether the table has measured a job beside each of its partners."""
        workload, known = self._jobs[job].workload, self._speeds.steps_per_s
        others = {self._jobs[partner].workload for partner in partners}
        kinds = {self.cluster.accelerators[kind] for kind in on}
        return all(
            SpeedKey(workload, len(on), kind, partner=other) in known
            for other in others
            for kind in kinds
        )

    def _measured_spread(self, job: int) -> bool:
        """Tell whether the table has a spread speed of a job's workload."""
        mine = self._jobs[job]
        return any(
            SpeedKey(mine.workload, mine.gang_on(kind), kind, "spread") in self._speeds.steps_per_s
            for kind in self.cluster.accelerators
        )


def _shape(job: Job) -> tuple[object, ...]:
    """Return what a job's speeds alone depend on."""
    return job.workload, job.gang, tuple(job.gangs.items())
