"""Physics applied to one cluster and its jobs: from placements to speed factors."""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.sim.physics.effects import Physics, WorkloadPhysics
from fairlead.sim.physics.measured_leases import LeaseReplay, StartKind


class PhysicsModel:
    """Speed factors and time costs of jobs, by placement, partners and neighbours."""

    def __init__(self, physics: Physics, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.effects = physics.effects
        self.has_neighbour_effects = bool(self.effects & {"switch", "network"})
        """whether jobs on other devices of a node affect a job's speed"""
        self._cluster = cluster
        self._jobs = jobs
        self._workload_physics = [physics.of(job.workload) for job in jobs]
        self._replays = {
            number: LeaseReplay(physics.leases[job.id])
            for number, job in enumerate(jobs)
            if job.id in physics.leases
        }
        self._node = cluster.node_of
        racks = {rack: i for i, rack in enumerate(dict.fromkeys(n.rack for n in cluster.nodes))}
        rack_of_node = np.array([racks[node.rack] for node in cluster.nodes])
        self._rack = rack_of_node[self._node]
        sizes = [len(node.devices) for node in cluster.nodes]
        first = np.cumsum([0, *sizes[:-1]])
        place = np.arange(len(self._node)) - first[self._node]
        wide = max(sizes)
        self._switch = self._node * wide + place // physics.topology.per_switch
        self._socket = self._node * wide + place // physics.topology.per_socket
        self._on_node = [np.flatnonzero(self._node == n) for n in range(len(sizes))]

    def workload_physics(self, job: int) -> WorkloadPhysics:
        """Return the effect parameters of a job."""
        return self._workload_physics[job]

    # -- speeds ---------------------------------------------------------------------------------

    def locality(self, job: int, devices: IntArray, *, spread_known: bool) -> float:
        """Return the fraction of its speed that a gang keeps on these devices.

        ``spread_known``: the base speed is already that of a spread gang.
        """
        if len(devices) == 1 or "locality" not in self.effects:
            return 1.0
        keeps = self._workload_physics[job].locality
        if _spans_several(self._rack[devices]):
            return keeps.racks
        if _spans_several(self._node[devices]):
            return 1.0 if spread_known else keeps.nodes
        if _spans_several(self._socket[devices]):
            return keeps.sockets
        return keeps.switches if _spans_several(self._switch[devices]) else 1.0

    def packed(self, unit: Sequence[int]) -> float:
        """Return the fraction of its solo speed that every job of a unit keeps.

        One job at full speed takes 1 / ``packed`` of a device, so n equal jobs together reach
        ``packed`` times the speed of one; different jobs share the device in proportion.
        """
        wanted = sum(1.0 / self._workload_physics[job].packed for job in unit)
        return 1.0 / max(wanted, 1.0)

    def fits(self, unit: Iterable[int], devices: IntArray) -> bool:
        """Return whether the memory of these devices holds all jobs of a unit."""
        if "memory" not in self.effects:
            return True
        wanted = sum(self.memory_gib(job) or 0.0 for job in unit)
        there = self._cluster.memory_gib[self._cluster.accelerator_of[devices]]
        return bool(wanted <= there.min())

    def contention_factor(
        self, job: int, devices: IntArray, others: Iterable[tuple[int, IntArray]]
    ) -> float:
        """Return the fraction of its speed that a job keeps with neighbours on other devices."""
        keeps = 1.0
        listed = list(others)
        if "switch" in self.effects:
            switches = set(self._switch[devices].tolist())
            near = [other for other, on in listed if switches & set(self._switch[on].tolist())]
            load = sum(self._workload_physics[other].switch.load for other in near)
            keeps *= 1.0 - self._workload_physics[job].switch.sensitivity * min(load, 1.0)
        if "network" in self.effects and _spans_several(self._node[devices]):
            nodes = set(self._node[devices].tolist())
            near = [
                other
                for other, on in listed
                if _spans_several(self._node[on]) and nodes & set(self._node[on].tolist())
            ]
            load = sum(self._workload_physics[other].network.load for other in near)
            keeps *= 1.0 - self._workload_physics[job].network.sensitivity * min(load, 1.0)
        return keeps

    def devices_on_same_nodes(self, devices: IntArray) -> IntArray:
        """Return all devices of the nodes that hold these devices."""
        nodes = np.unique(self._node[devices]).tolist()
        return np.concatenate([self._on_node[node] for node in nodes])

    # -- time and utilization -------------------------------------------------------------------

    def start_s(
        self, job: IntArray, before: IntArray, first: IntArray, prepared: IntArray
    ) -> FloatArray:
        """Return jobs → seconds without progress at their start on these first devices.

        ``before`` is the first device of each job's previous start, ``prepared`` the device on
        which a process waits for its lease; -1 for none.
        """
        if "costs" not in self.effects:
            return np.zeros(len(job))
        seconds = []
        devices = np.stack([before, first, prepared], axis=1).tolist()
        for number, (was, now, ready) in zip(job.tolist(), devices, strict=True):
            costs, begins = self._workload_physics[number].costs, _start_kind(was, now, ready)
            replay = self._replays.get(number)
            measured = None if replay is None else replay.next_start_s(begins)
            if measured is not None:
                seconds.append(measured)
            elif begins == "first":
                seconds.append(costs.preload_s)
            elif begins == "hand-over" and costs.hand_over_s is not None:
                seconds.append(costs.hand_over_s)
            elif self._node[was] == self._node[now]:
                seconds.append(costs.resume_s + (costs.move_s if was != now else 0.0))
            else:
                seconds.append(costs.migrate_s)
        return np.array(seconds)

    def replay(
        self, job: IntArray, first: IntArray, rate: FloatArray, leave_s: FloatArray
    ) -> None:
        """Replace the speeds and ends of leases that start now by those of the real run.

        ``rate`` has an entry for each lease, ``leave_s`` one for each job of the trace.
        """
        if not self._replays:
            return
        accelerator_of = self._cluster.accelerator_of[first].tolist()
        for i, (number, accelerator) in enumerate(zip(job.tolist(), accelerator_of, strict=True)):
            if number in self._replays:
                replay = self._replays[number]
                speed = replay.next_steps_per_s(self._cluster.accelerators[accelerator])
                leaves = replay.next_leave_s()
                rate[i] = rate[i] if speed is None else speed
                leave_s[number] = leave_s[number] if leaves is None else leaves

    def leave_s(self) -> FloatArray:
        """Return jobs → seconds between the last step and free devices."""
        on = "costs" in self.effects
        return np.array(
            [physics.costs.leave_s if on else 0.0 for physics in self._workload_physics]
        )

    def merge_s(self, job: IntArray) -> FloatArray:
        """Return jobs → seconds without progress when their copies restart."""
        on = "costs" in self.effects
        return np.array(
            [self._workload_physics[j].costs.merge_s if on else 0.0 for j in job.tolist()]
        )

    def working_fraction(self, job: IntArray, every_s: float) -> FloatArray:
        """Return jobs → fraction of time not spent on regular checkpoints."""
        if "costs" not in self.effects:
            return np.ones(len(job))
        cost = np.array(
            [self._workload_physics[number].costs.checkpoint_s for number in job.tolist()]
        )
        return every_s / (every_s + cost)

    def utilization(self, job: int) -> float | None:
        """Return the utilization of its devices by a job alone; None if unknown."""
        own = self._jobs[job].utilization
        return own if own is not None else self._workload_physics[job].utilization

    def memory_gib(self, job: int) -> float | None:
        """Return the memory that a job needs on every device; None if unknown."""
        own = self._jobs[job].memory_gib
        return own if own is not None else self._workload_physics[job].memory_gib


def _start_kind(was: int, now: int, prepared: int) -> StartKind:
    """Return the kind of a start by the devices before, now and with a prepared process."""
    if was < 0:
        return "first"
    if was == now:
        return "resume"
    return "hand-over" if now == prepared else "move"


def _spans_several(places: IntArray) -> bool:
    return bool((places != places[0]).any())
