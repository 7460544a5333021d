"""Table of nodes: lost, cordoned and removed nodes, taken devices, and the usable devices left."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import NO_INTS, BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError


class NodeTable:
    """The condition of each node, and the devices that can be used because of it.

    Nothing new starts on a cordoned node or on a taken device; leases there run until they end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.down: set[int] = set()
        self.cordoned: set[int] = set()
        self.removed: set[int] = set()
        self.taken: BoolArray = np.zeros(len(cluster.node_of), dtype=bool)
        """devices → users outside Fairlead hold it, or it is missing"""
        self._recompute()

    def columns(self) -> dict[str, list[int]]:
        """Return the table's content, for ``restore``."""
        return {
            "down": sorted(self.down),
            "cordoned": sorted(self.cordoned),
            "removed": sorted(self.removed),
            "taken": self.taken.nonzero()[0].tolist(),
        }

    def restore(self, saved: Mapping[str, Sequence[int]]) -> None:
        """Take the content that ``columns`` returned."""
        self.down, self.cordoned = set(saved["down"]), set(saved.get("cordoned", ()))
        self.removed = set(saved.get("removed", ()))
        self.taken[list(saved.get("taken", ()))] = True
        self._recompute()

    def extend_cluster(self, cluster: Cluster) -> None:
        """Use a cluster with additional nodes."""
        more = len(cluster.node_of) - len(self.taken)
        self.cluster = cluster
        self.taken = np.append(self.taken, np.zeros(more, dtype=bool))
        self._recompute()

    def mark_lost(self, name: str) -> None:
        """Mark a node and all its devices as unusable until it returns."""
        self.down.add(self._find(name))
        self._recompute()

    def mark_returned(self, name: str) -> None:
        """Mark a lost node as usable; reject a removed node."""
        node = self._find(name)
        if node in self.removed:
            raise ProtocolError(f"node {name!r} was removed; `fairlead nodes restore` undoes this")
        self.down.discard(node)
        self._recompute()

    def mark_removed(self, name: str) -> None:
        """Mark a node as lost until it is restored."""
        self.removed.add(self._find(name))
        self.mark_lost(name)

    def mark_restored(self, name: str) -> None:
        """Mark a removed node as one that may return."""
        node = self._find(name)
        if node not in self.removed:
            raise ProtocolError(f"node {name!r} is not removed")
        self.removed.discard(node)

    @property
    def permanent_devices(self) -> IntArray:
        """accelerators → devices that are up or may return."""
        cluster = self.cluster
        remaining = cluster.accelerator_of[~np.isin(cluster.node_of, list(self.removed))]
        return np.bincount(remaining, minlength=len(cluster.accelerators))

    @property
    def permanent_by_name(self) -> dict[str, int]:
        """accelerator → devices that are up or may return; without accelerators that have none."""
        counts = zip(self.cluster.accelerators, self.permanent_devices.tolist(), strict=True)
        return {name: count for name, count in counts if count}

    @property
    def down_names(self) -> set[str]:
        """Names of lost, drained and removed nodes."""
        return self._names(self.down)

    @property
    def cordoned_names(self) -> set[str]:
        """Names of cordoned nodes."""
        return self._names(self.cordoned)

    @property
    def removed_names(self) -> set[str]:
        """Names of removed nodes."""
        return self._names(self.removed)

    def _names(self, indices: set[int]) -> set[str]:
        return {self.cluster.nodes[index].id for index in indices}

    def set_cordoned(self, name: str, cordoned: bool) -> None:
        """Mark a node as closed to new leases, or open it again."""
        node = self._find(name)
        (self.cordoned.add if cordoned else self.cordoned.discard)(node)
        self._recompute()

    def set_taken(self, name: str, numbers: Sequence[int]) -> None:
        """Mark these devices of a node as taken by other users, and its other devices as free."""
        devices = self.devices_on(name)
        if not set(numbers) <= set(range(len(devices))):
            raise ProtocolError(
                f"node {name!r} has {len(devices)} devices, numbered from 0: not {list(numbers)}"
            )
        self.taken[devices] = False
        self.taken[devices[list(numbers)]] = True
        self._recompute()

    def taken_on(self, name: str) -> tuple[int, ...]:
        """Return the taken devices of a node, by their numbers on it."""
        return tuple(self.taken[self.devices_on(name)].nonzero()[0].tolist())

    def devices_on(self, name: str) -> IntArray:
        """Return a node's devices, in the order of their numbers on it."""
        devices: IntArray = (self.cluster.node_of == self._find(name)).nonzero()[0]
        return devices

    def keeps_jobs(self, leases: LeaseTable) -> bool:
        """Return whether closed devices or pinned leases may keep jobs in place."""
        return self.any_closed or bool(leases.pinned)

    def pinned_jobs(self, leases: LeaseTable, *, pins: bool = True) -> tuple[IntArray, BoolArray]:
        """Return the jobs that stay in place, and the devices closed to all others.

        Pinned leases stay, and so do leases on closed devices. A gang that is partly on a
        cordoned node or a taken device keeps its other devices, too, and so do the jobs that
        share them: a mechanism that sees none of these can plan for the remaining devices as
        for a smaller cluster. Without ``pins`` only closed devices count.
        """
        closed = self._closed
        pins = pins and bool(leases.pinned)
        if not (self.any_closed or pins):
            return NO_INTS, closed
        if pins:
            closed = closed | leases.pinned_devices()
        staying = np.zeros(len(leases.lease), dtype=bool)
        staying[leases.active_slots] = True
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
        raise ProtocolError(f"unknown node {name!r}")

    def _recompute(self) -> None:
        node_of = self.cluster.node_of
        self.is_up: BoolArray = ~np.isin(node_of, list(self.down))
        """devices → its node is up"""
        self._closed: BoolArray = self.taken | np.isin(node_of, list(self.cordoned))
        self.any_closed = bool(self._closed.any())
        """whether any device, up or down, is closed to new leases"""
        self.is_open: BoolArray = self.is_up & ~self._closed
        """devices → a new lease may start on it"""
        self.usable = (self.is_up & ~self.taken).nonzero()[0]
        """devices that are up and not taken, ascending"""
        accelerator = self.cluster.accelerator_of[self.usable]
        self.capacity = np.bincount(accelerator, minlength=len(self.cluster.accelerators))
        """accelerators → devices that are up and not taken"""
