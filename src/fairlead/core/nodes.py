"""Which devices there are to place on: nodes may be down or cordoned, devices held by others."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import NO_INTS, BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError


class Nodes:
    """The cluster's nodes as they stand now, and what follows for their devices.

    Nothing new starts on a cordoned node or on a device that others hold, and what runs there
    goes on until it ends.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.down: set[int] = set()
        self.cordoned: set[int] = set()
        self.removed: set[int] = set()
        self.taken: BoolArray = np.zeros(len(cluster.node_of), dtype=bool)
        """devices → others hold it"""
        self._recompute()

    def columns(self) -> dict[str, list[int]]:
        """Return what makes up this state."""
        return {
            "down": sorted(self.down),
            "cordoned": sorted(self.cordoned),
            "removed": sorted(self.removed),
            "taken": self.taken.nonzero()[0].tolist(),
        }

    def restore(self, saved: Mapping[str, Sequence[int]]) -> None:
        """Go on from what ``columns`` gave."""
        self.down, self.cordoned = set(saved["down"]), set(saved.get("cordoned", ()))
        self.removed = set(saved.get("removed", ()))
        self.taken[list(saved.get("taken", ()))] = True
        self._recompute()

    def use(self, cluster: Cluster) -> None:
        """Go on with a cluster that has further nodes."""
        more = len(cluster.node_of) - len(self.taken)
        self.cluster = cluster
        self.taken = np.append(self.taken, np.zeros(more, dtype=bool))
        self._recompute()

    def lose(self, name: str) -> None:
        """Note that a node and all its devices are gone."""
        self.down.add(self._find(name))
        self._recompute()

    def take_back(self, name: str) -> None:
        """Note that a lost node is there again; refuse one that was removed."""
        node = self._find(name)
        if node in self.removed:
            raise ProtocolError(f"node {name!r} was removed; it can join under another name")
        self.down.discard(node)
        self._recompute()

    def remove(self, name: str) -> None:
        """Note that a node is gone for good."""
        self.removed.add(self._find(name))
        self.lose(name)

    @property
    def lasting(self) -> IntArray:
        """accelerators → devices that are there or may return."""
        cluster = self.cluster
        kinds = cluster.accelerator_of[~np.isin(cluster.node_of, list(self.removed))]
        return np.bincount(kinds, minlength=len(cluster.accelerators))

    @property
    def permanent_by_name(self) -> dict[str, int]:
        """accelerator → devices that are there or may return, where there are any."""
        counts = zip(self.cluster.accelerators, self.lasting.tolist(), strict=True)
        return {name: count for name, count in counts if count}

    def cordon(self, name: str, cordoned: bool) -> None:
        """Note that nothing new is to start on a node, or that this is over."""
        node = self._find(name)
        (self.cordoned.add if cordoned else self.cordoned.discard)(node)
        self._recompute()

    def take(self, name: str, numbers: Sequence[int]) -> None:
        """Note that others hold these devices of a node, and none of its others."""
        mine = self.devices_on(name)
        if not set(numbers) <= set(range(len(mine))):
            raise ProtocolError(
                f"node {name!r} has {len(mine)} devices, numbered from 0: not {list(numbers)}"
            )
        self.taken[mine] = False
        self.taken[mine[list(numbers)]] = True
        self._recompute()

    def taken_on(self, name: str) -> tuple[int, ...]:
        """Return which of a node's devices others hold, by their numbers on it."""
        return tuple(self.taken[self.devices_on(name)].nonzero()[0].tolist())

    def devices_on(self, name: str) -> IntArray:
        """Return a node's devices, in the order of their numbers on it."""
        mine: IntArray = (self.cluster.node_of == self._find(name)).nonzero()[0]
        return mine

    def pinned(self, leases: LeaseTable) -> tuple[IntArray, BoolArray]:
        """Return the jobs that closed devices keep in place, and the devices closed to all others.

        A gang that is partly on a cordoned node, or on a device that others hold, too, keeps its
        devices elsewhere, and with it whoever shares them: a mechanism that sees none of these
        can plan for the rest as for a smaller cluster.
        """
        closed = self._closed
        if not self.any_closed:
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

    def _recompute(self) -> None:
        node_of = self.cluster.node_of
        self.is_up: BoolArray = ~np.isin(node_of, list(self.down))
        """devices → its node is up"""
        self._closed: BoolArray = self.taken | np.isin(node_of, list(self.cordoned))
        self.any_closed = bool(self._closed.any())
        """whether nothing new may start on some devices, be their nodes up or not"""
        self.is_open: BoolArray = self.is_up & ~self._closed
        """devices → something new may start on it"""
        self.usable = (self.is_up & ~self.taken).nonzero()[0]
        """the devices that are up and that nobody else holds, ascending"""
        kinds = self.cluster.accelerator_of[self.usable]
        self.capacity = np.bincount(kinds, minlength=len(self.cluster.accelerators))
        """accelerators → devices that are up and that nobody else holds"""
