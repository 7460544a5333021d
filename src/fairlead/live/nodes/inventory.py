"""Reconciles the scheduler's nodes with the nodes that its engine has."""

import json
from collections.abc import Iterable, Sequence

import structlog

from fairlead.core.nodes import NodeTable
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.store import Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")


class NodeReconciler:
    """Turns the engine's inventory into events; the indices of nodes never change.

    The nodes of the first start are a document; all others were added by events. Nodes that the
    engine did not have at the last start are documents, too: only these return when it has them.
    """

    def __init__(self, store: Store, present: Cluster) -> None:
        stored = store.documents("cluster").get("nodes")
        nodes = present.nodes
        if stored is not None:
            nodes = tuple(Node(*_fields(node)) for node in json.loads(stored))
        self.initial_cluster = Cluster(nodes, present.details)
        """the cluster before all events"""
        self.missing = set(store.documents("missing"))
        """nodes that were not in the engine's last inventory"""
        self.down_before_restart = set(store.documents("away"))
        """nodes that the engine had reported down when the last server ended"""
        self._changes: list[Change] = []
        if stored is None:
            body = json.dumps([[node.id, node.devices, node.rack] for node in nodes])
            self._changes.append(Put("cluster", "nodes", body))

    def reconcile_all(
        self, at: float, nodes: NodeTable, present: Sequence[Node]
    ) -> list[ev.Event]:
        """Return the events of an inventory of all nodes."""
        events = self.reconcile(at, nodes, present)
        accounted = {node.id for node in present} | self.missing
        for known in nodes.cluster.nodes:
            if known.id not in accounted:
                if known.id not in nodes.removed_names:
                    log.warning("node.missing", node=known.id)
                events += self._lost(at, nodes, known.id)
        return events

    def reconcile(self, at: float, nodes: NodeTable, present: Iterable[Node]) -> list[ev.Event]:
        """Return the events of these nodes; the engine may have others."""
        known = {node.id: node for node in nodes.cluster.nodes}
        removed = nodes.removed_names
        events: list[ev.Event] = []
        for node in present:
            if node.id not in known:
                log.info("node.added", node=node.id, devices=len(node.devices))
                events.append(ev.NodeAdded(at, node))
            elif known[node.id].devices != node.devices:
                log.error("node.changed", node=node.id, fix="give it another name")
                events += self._lost(at, nodes, node.id)
            else:
                if node.id in removed:
                    log.warning("node.ignored", node=node.id, why="removed: restore or rename it")
                events += self._found(at, node.id, removed=node.id in removed)
        return events

    def lose_all(self, at: float, nodes: NodeTable) -> list[ev.Event]:
        """Return the loss of every node; the next inventory returns those that it has."""
        names = [node.id for node in nodes.cluster.nodes]
        return [event for name in names for event in self._lost(at, nodes, name)]

    def changes(self) -> list[Change]:
        """Return the document changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _found(self, at: float, name: str, *, removed: bool) -> list[ev.Event]:
        """Record a node of the engine; return it to use if it was missing and is not removed."""
        if name not in self.missing:
            return []
        self.missing.discard(name)
        self._changes += [Remove("missing", name), Remove("away", name)]
        return [] if removed else [ev.NodeReturned(at, name)]

    def _lost(self, at: float, nodes: NodeTable, name: str) -> list[ev.Event]:
        """Record a missing node, drained or not, so that an operator cannot return it."""
        self.missing.add(name)
        self._changes.append(Put("missing", name, ""))
        return [] if name in nodes.down_names else [ev.NodeLost(at, name)]


def require_matching_nodes(cluster: Cluster, present: Cluster) -> None:
    """Raise UsageError if every node of the engine has other devices than before."""
    devices = {node.id: node.devices for node in cluster.nodes}
    for node in present.nodes:
        if devices.get(node.id, node.devices) == node.devices:
            return
    node = present.nodes[0]
    raise UsageError(
        f"node {node.id!r} has devices {_counted(node.devices)} now and had"
        f" {_counted(devices[node.id])}; use another data directory, or give the node another name"
        " (--node-name on the local engine)"
    )


def _counted(devices: Sequence[str]) -> str:
    return ",".join(f"{name}={devices.count(name)}" for name in dict.fromkeys(devices))


def _fields(stored: Sequence[object]) -> tuple[str, tuple[str, ...], str]:
    name, devices, rack = stored
    assert isinstance(devices, list)
    return str(name), tuple(devices), str(rack)
