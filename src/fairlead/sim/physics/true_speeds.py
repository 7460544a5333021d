"""True speeds of jobs in the virtual cluster; the scheduler does not see them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.lease import Placements
from fairlead.model.speeds.table import Consolidation, SpeedKey, SpeedTable

if TYPE_CHECKING:
    from fairlead.sim.physics.effects import Physics
    from fairlead.sim.physics.model import PhysicsModel


class TrueSpeeds:
    """True speeds of a trace's jobs on a cluster's devices, with or without physics."""

    def __init__(
        self,
        cluster: Cluster,
        speeds: SpeedTable,
        jobs: Sequence[Job],
        physics: "Physics | None" = None,
    ) -> None:
        self.physics_model = None if physics is None else _model(physics, cluster, jobs)
        self.cluster = cluster
        self._speeds = speeds
        self._jobs = jobs
        accelerators = cluster.accelerators
        index: dict[tuple[object, ...], int] = {}
        self._row_of: IntArray = np.array(
            [index.setdefault(_shape(job), len(index)) for job in jobs], dtype=np.int64
        )
        each = {_shape(job): job for job in reversed(jobs)}
        self._solo: FloatArray = np.array(
            [speeds.row_of(each[key], accelerators) for key in index]
        )
        spread = [
            [
                speeds.speed(job.workload, (name,) * job.gang_on(name), placement="spread")
                for name in accelerators
            ]
            for job in (each[key] for key in index)
        ]
        self._placement_matters = not np.array_equal(self._solo, np.array(spread))
        self._gang: IntArray = np.array([job.gang for job in jobs], dtype=np.int64)
        sizes = {(job.min_gang or job.gang, job.max_gang or job.gang, job.gang) for job in jobs}
        self._elastic = any(least != most or least != gang for least, most, gang in sizes)
        self._in_entry = self.solo_speeds().reshape(-1)
        self._beside: dict[tuple[str, bool, tuple[int, ...], str], float | None] = {}
        """cache: (workload, spread, accelerators of the devices, partner) → steps per second;
        None if the table has none"""
        self._alone: dict[tuple[str, bool, tuple[int, ...]], float] = {}
        """cache: the same without a partner"""
        self._in_pair: dict[tuple[int, int, int], float] = {}
        """cache: (row of the job, row of its partner or -1, accelerator) → steps per second"""

    def entry(self, units: Placements) -> IntArray:
        """Return placements → index into the flattened table of jobs × accelerators.

        The accelerator is that of the first device.
        """
        accelerator = self.cluster.accelerator_of[units.first]
        entry: IntArray = units.job * self._solo.shape[1] + accelerator
        return entry

    def solo_speeds(self) -> FloatArray:
        """Return jobs × accelerators → steps per second, consolidated and without a partner."""
        return self._solo[self._row_of]

    def speed(self, units: Placements, entry: IntArray) -> FloatArray:
        """Return placements → steps per second of a job alone on its devices.

        ``entry`` is the result of ``entry(units)``.
        """
        rate: FloatArray = self._in_entry[entry]
        if self.physics_model is not None:
            special = np.ones(len(units), dtype=bool)
        elif units.single and not self._elastic:
            return rate
        else:
            first = units.start[:-1]
            on = self.cluster.accelerator_of[units.device]
            size = units.start[1:] - first
            special = ~np.logical_and.reduceat(on == on[first].repeat(size), first)
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
        """Return the steps per second of a job on these devices with its partners.

        Of several partners, the one that slows the job most counts, unless physics models the
        packing; jobs whose pair the table lacks take turns, as on emulated devices.
        ``neighbours`` are jobs on other devices of the same nodes, with their devices.
        """
        on = tuple(self.cluster.accelerator_of[devices].tolist())
        spread = len(on) > 1 and len(set(self.cluster.node_of[devices].tolist())) > 1
        physics = self.physics_model
        if physics is None:
            return self._slowest(job, spread, on, partners)
        if not physics.fits((job, *partners), devices):
            return 0.0
        keeps = 1.0
        if partners and "packing" in physics.effects and not self._measured(job, on, partners):
            keeps = physics.packed((job, *partners))
            partners = ()
        keeps *= physics.locality(job, devices, spread_known=spread and self._measured_spread(job))
        if physics.has_neighbour_effects:
            keeps *= physics.contention_factor(job, devices, neighbours)
        return keeps * self._slowest(job, spread, on, partners)

    def speeds_in_pairs(self, job: IntArray, device: IntArray, partner: IntArray) -> FloatArray:
        """Return what ``speed_with`` does for jobs on one device each, without physics.

        ``partner`` is the only job beside each, -1 for none.
        """
        accelerator, row_of = self.cluster.accelerator_of[device], self._row_of
        beside = np.where(partner >= 0, row_of[partner], -1)
        keys = zip(row_of[job].tolist(), beside.tolist(), accelerator.tolist(), strict=True)
        speeds = []
        for i, key in enumerate(keys):
            speed = self._in_pair.get(key)
            if speed is None:
                partners = [] if partner[i] < 0 else [int(partner[i])]
                speed = self._slowest(int(job[i]), False, (key[2],), partners)
                self._in_pair[key] = speed
            speeds.append(speed)
        return np.array(speeds)

    def speed_on(
        self, job: int, accelerator: int, placement: Consolidation | None, partners: Sequence[int]
    ) -> float:
        """Return the steps per second of a job on one accelerator with its partners.

        ``placement`` None means consolidated.
        """
        gang_on = self._jobs[job].gang_on
        on = (accelerator,) * gang_on(self.cluster.accelerators[accelerator])
        return self._slowest(job, placement == "spread", on, partners)

    def best(self, job: int, accelerator: int, size: int) -> float:
        """Return the highest steps per second of a gang of this size on one accelerator."""
        return self._slowest(job, False, (accelerator,) * size, ())

    def _slowest(
        self, job: int, spread: bool, on: tuple[int, ...], partners: Sequence[int]
    ) -> float:
        workload, gang = self._jobs[job].workload, self._jobs[job].gang
        if self._jobs[job].gangs:
            gang = self._jobs[job].gang_on(self.cluster.accelerators[on[0]])
        if len(on) != gang and len(on) not in self._speeds.gangs[workload]:
            # An elastic gang of unmeasured size: scaled from the job's declared gang.
            power = (
                1.0
                if self.physics_model is None
                else self.physics_model.workload_physics(job).scaling
            )
            full = [
                self._slowest(job, spread, (accelerator,) * gang, partners)
                for accelerator in set(on)
            ]
            return min(full) * float((len(on) / gang) ** power)
        alone = self._speed_alone(workload, spread, on)
        if not partners:
            return alone
        in_turn = alone / (1 + len(partners))
        others = {self._jobs[partner].workload for partner in partners}
        beside = [self._speed_beside_one(workload, spread, on, other) for other in others]
        return min(in_turn if speed is None else speed for speed in beside)

    def _speed_alone(self, workload: str, spread: bool, on: tuple[int, ...]) -> float:
        key = (workload, spread, on)
        if key not in self._alone:
            self._alone[key] = self._table_speed(workload, spread, on, None)
        return self._alone[key]

    def _speed_beside_one(
        self, workload: str, spread: bool, on: tuple[int, ...], partner: str
    ) -> float | None:
        """Return the table's speed beside a partner; None if it has none."""
        key = (workload, spread, on, partner)
        if key not in self._beside:
            speed = self._table_speed(workload, spread, on, partner)
            known = speed > 0.0 or self._is_listed_as_0(workload, on, partner)
            self._beside[key] = speed if known else None
        return self._beside[key]

    def _table_speed(
        self, workload: str, spread: bool, on: tuple[int, ...], partner: str | None
    ) -> float:
        return self._speeds.speed(
            workload,
            [self.cluster.accelerators[accelerator] for accelerator in on],
            placement="spread" if spread else "consolidated",
            partner=partner,
        )

    def _is_listed_as_0(self, workload: str, on: tuple[int, ...], partner: str) -> bool:
        """Return whether the table has a pair that does not run together on one of these."""
        gangs = {len(on)} if self._speeds.has_gang_speeds else {1, len(on)}
        return any(
            self._speeds.steps_per_s.get(SpeedKey(workload, gang, name, partner=partner)) == 0.0
            for gang in gangs
            for name in {self.cluster.accelerators[accelerator] for accelerator in on}
        )

    def _measured(self, job: int, on: tuple[int, ...], partners: Sequence[int]) -> bool:
        """Return whether the table has a measured speed of a job with each of its partners."""
        workload, known = self._jobs[job].workload, self._speeds.steps_per_s
        others = {self._jobs[partner].workload for partner in partners}
        accelerators = {self.cluster.accelerators[accelerator] for accelerator in on}
        return all(
            SpeedKey(workload, len(on), accelerator, partner=other) in known
            for other in others
            for accelerator in accelerators
        )

    def _measured_spread(self, job: int) -> bool:
        """Return whether the table has a spread speed of a job's workload."""
        workload, gang_on = self._jobs[job].workload, self._jobs[job].gang_on
        return any(
            SpeedKey(workload, gang_on(name), name, "spread") in self._speeds.steps_per_s
            for name in self.cluster.accelerators
        )


def _shape(job: Job) -> tuple[object, ...]:
    """Return the attributes that determine a job's solo speeds."""
    return job.workload, job.gang, tuple(job.gangs.items())


def _model(physics: "Physics", cluster: Cluster, jobs: Sequence[Job]) -> "PhysicsModel":
    from fairlead.sim.physics.model import PhysicsModel  # noqa: PLC0415  # most runs have none

    return PhysicsModel(physics, cluster, jobs)
