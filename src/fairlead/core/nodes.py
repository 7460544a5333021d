"""Which devices there are to place on: nodes may be down, or cordoned."""

import numpy as np

from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import NO_INTS, BoolArray, IntArray
from fairlead.model.cluster import Cluster, capacity
from fairlead.model.errors import ProtocolError


class Nodes:
    """The cluster's nodes as they stand now, and what follows for their devices.

    Nothing new starts on a cordoned node, and what runs there goes on until it ends.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.set(set(), set())

    def set(self, down: set[int], cordoned: set[int]) -> None:
        """Say which nodes are down and which are cordoned."""
        self.down, self.cordoned = down, cordoned
        self._refresh()

    def lose(self, name: str) -> None:
        """Note that a node and all its devices are gone."""
        self.down.add(self._find(name))
        self._refresh()

    def take_back(self, name: str) -> None:
        """Note that a lost node is there again."""
        self.down.discard(self._find(name))
        self._refresh()

    def cordon(self, name: str, cordoned: bool) -> None:
        """Note that nothing new is to start on a node, or that this is over."""
        node = self._find(name)
        (self.cordoned.add if cordoned else self.cordoned.discard)(node)
        self._refresh()

    def pinned(self, leases: LeaseTable) -> tuple[IntArray, BoolArray]:
        """Return the jobs that cordons keep in place, and the devices closed to all others.

        A gang that is partly on a cordoned node keeps its devices elsewhere, too, and with it
        whoever shares them: a mechanism that sees none of these can plan for the rest as for a
        smaller cluster.
        """
        closed = self._is_cordoned
        if not self.cordoned:
            return NO_INTS, closed
        staying = np.zeros(len(leases.lease), dtype=bool)
        staying[leases.staying] = True
        while True:
            slots = leases.on_devices(closed)
            jobs = np.unique(leases.job[slots[staying[slots]]])
            theirs = staying & np.isin(leases.job, jobs)
            held = theirs[leases.holder].any(axis=0)
            if not (held & ~closed).any():
                return jobs, closed
            closed = closed | held

    def _find(self, name: str) -> int:
        for index, node in enumerate(self.cluster.nodes):
            if node.id == name:
                return index
        raise ProtocolError(f"there is no node {name!r}")

    def _refresh(self) -> None:
        node_of = self.cluster.node_of
        self.capacity = capacity(self.cluster, self.down)
        """accelerators → devices on nodes that are up"""
        self.is_up: BoolArray = ~np.isin(node_of, list(self.down))
        """devices → its node is up"""
        self._is_cordoned: BoolArray = np.isin(node_of, list(self.cordoned))
        self.is_open: BoolArray = self.is_up & ~self._is_cordoned
        """devices → something new may start on it"""
        self.usable = self.is_up.nonzero()[0]
        """the devices on nodes that are up, ascending"""
