"""Physics at work on one cluster and its jobs: from where jobs are to how fast they go."""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.sim.physics.effects import Physics, WorkloadPhysics


class PhysicsModel:
    """What physics makes of placements, partners and neighbours."""

    def __init__(self, physics: Physics, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.effects = physics.effects
        self.crowded = bool(self.effects & {"switch", "network"})
        """whether jobs on other devices of a node matter"""
        self._cluster = cluster
        self._jobs = jobs
        self._nature = [physics.of(job.workload) for job in jobs]
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

    def nature(self, job: int) -> WorkloadPhysics:
        """Return what physics does to a job."""
        return self._nature[job]

    # -- speeds ---------------------------------------------------------------------------------

    def locality(self, job: int, devices: IntArray, *, spread_known: bool) -> float:
        """Return the part of its speed that a gang keeps on these devices.

        ``spread_known``: the speed that is multiplied by it is that of a spread gang already.
        """
        if len(devices) == 1 or "locality" not in self.effects:
            return 1.0
        keeps = self._nature[job].locality
        if _several(self._rack[devices]):
            return keeps.racks
        if _several(self._node[devices]):
            return 1.0 if spread_known else keeps.nodes
        if _several(self._socket[devices]):
            return keeps.sockets
        return keeps.switches if _several(self._switch[devices]) else 1.0

    def packed(self, unit: Sequence[int]) -> float:
        """Return the part of its speed alone that every job of a unit keeps.

        One job at full speed takes 1 / ``packed`` of a device, so that n like jobs together reach
        ``packed`` times the speed of one, and different ones take turns in proportion.
        """
        wanted = sum(1.0 / self._nature[job].packed for job in unit)
        return 1.0 / max(wanted, 1.0)

    def fits(self, unit: Iterable[int], devices: IntArray) -> bool:
        """Tell whether the memory of these devices holds all jobs of a unit."""
        if "memory" not in self.effects:
            return True
        wanted = sum(self.memory_gib(job) or 0.0 for job in unit)
        there = self._cluster.memory_gib[self._cluster.accelerator_of[devices]]
        return bool(wanted <= there.min())

    def crowd(self, job: int, devices: IntArray, others: Iterable[tuple[int, IntArray]]) -> float:
        """Return the part of its speed that a job keeps beside neighbours on other devices."""
        keeps = 1.0
        listed = list(others)
        if "switch" in self.effects:
            mine = set(self._switch[devices].tolist())
            near = [other for other, on in listed if mine & set(self._switch[on].tolist())]
            load = sum(self._nature[other].switch.load for other in near)
            keeps *= 1.0 - self._nature[job].switch.sensitivity * min(load, 1.0)
        if "network" in self.effects and _several(self._node[devices]):
            nodes = set(self._node[devices].tolist())
            near = [
                other
                for other, on in listed
                if _several(self._node[on]) and nodes & set(self._node[on].tolist())
            ]
            load = sum(self._nature[other].network.load for other in near)
            keeps *= 1.0 - self._nature[job].network.sensitivity * min(load, 1.0)
        return keeps

    def around(self, devices: IntArray) -> IntArray:
        """Return all devices of the nodes to which these belong."""
        nodes = np.unique(self._node[devices]).tolist()
        return np.concatenate([self._on_node[node] for node in nodes])

    # -- time and use ---------------------------------------------------------------------------

    def start_s(self, job: IntArray, before: IntArray, first: IntArray) -> FloatArray:
        """Return the seconds without progress with which jobs start on their first device.

        ``before`` is the device on which each started last, -1 for none.
        """
        if "costs" not in self.effects:
            return np.zeros(len(job))
        found = []
        for number, was, now in zip(job.tolist(), before.tolist(), first.tolist(), strict=True):
            costs = self._nature[number].costs
            if was < 0:
                found.append(costs.preload_s)
            elif self._node[was] == self._node[now]:
                found.append(costs.resume_s)
            else:
                found.append(costs.migrate_s)
        return np.array(found)

    def leave_s(self) -> FloatArray:
        """Return jobs → seconds from its last step until its devices are free."""
        on = "costs" in self.effects
        return np.array([nature.costs.leave_s if on else 0.0 for nature in self._nature])

    def merge_s(self, job: IntArray) -> FloatArray:
        """Return the seconds without progress with which copies of jobs start again."""
        on = "costs" in self.effects
        return np.array([self._nature[j].costs.merge_s if on else 0.0 for j in job.tolist()])

    def working(self, job: IntArray, every_s: float) -> FloatArray:
        """Return jobs → part of its time that it does not spend on regular checkpoints."""
        if "costs" not in self.effects:
            return np.ones(len(job))
        cost = np.array([self._nature[number].costs.checkpoint_s for number in job.tolist()])
        return every_s / (every_s + cost)

    def utilization(self, job: int) -> float | None:
        """Return how busy a job alone keeps its devices; None where nobody says."""
        own = self._jobs[job].utilization
        return own if own is not None else self._nature[job].utilization

    def memory_gib(self, job: int) -> float | None:
        """Return what a job needs on every device; None where nobody says."""
        own = self._jobs[job].memory_gib
        return own if own is not None else self._nature[job].memory_gib


def _several(places: IntArray) -> bool:
    return bool((places != places[0]).any())
