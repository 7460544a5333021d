"""The nodes that the scheduler knows, and those that its engine has now."""

import json
from collections.abc import Iterable, Sequence

import structlog

from fairlead.core.nodes import Nodes
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError
from fairlead.store import Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")


class NodeReconciler:
    """Turns what an engine has into events; nodes keep their numbers for as long as the log goes.

    The nodes of the very first start are a document, and all others came by events. So are nodes
    that the engine did not have at the last start: only these are taken back when it has them.
    """

    def __init__(self, store: Store, found: Cluster) -> None:
        kept = store.documents("cluster").get("nodes")
        nodes = found.nodes if kept is None else tuple(Node(*_tuples(n)) for n in json.loads(kept))
        self.first = Cluster(nodes, found.details)
        """the cluster before all events"""
        self.missing = set(store.documents("missing"))
        """nodes that the engine did not have when it was last asked for all"""
        self.away = set(store.documents("away"))
        """nodes that the engine had told to be down when the last server ended"""
        self._changes: list[Change] = []
        if kept is None:
            body = json.dumps([[node.id, node.devices, node.rack] for node in nodes])
            self._changes.append(Put("cluster", "nodes", body))

    def reconcile_all(self, at: float, nodes: Nodes, found: Sequence[Node]) -> list[ev.Event]:
        """Return what follows when these are all nodes that the engine has."""
        events = self.found(at, nodes, found)
        here = {node.id for node in found}
        for index, known in enumerate(nodes.cluster.nodes):
            if known.id not in here | self.missing and index not in nodes.removed:
                log.warning("node.missing", node=known.id)
                events += self._lost(at, nodes, index)
        return events

    def found(self, at: float, nodes: Nodes, found: Iterable[Node]) -> list[ev.Event]:
        """Return what follows when the engine has these nodes, and perhaps others."""
        known = {node.id: (index, node) for index, node in enumerate(nodes.cluster.nodes)}
        events: list[ev.Event] = []
        for node in found:
            if node.id not in known:
                log.info("node.added", node=node.id, devices=len(node.devices))
                events.append(ev.NodeAdded(at, node))
                continue
            index, before = known[node.id]
            if index in nodes.removed:
                log.warning("node.ignored", node=node.id, why="it was removed; rename it")
            elif before.devices != node.devices:
                log.error("node.changed", node=node.id, fix="give it another name")
                events += self._lost(at, nodes, index)
            elif node.id in self.missing:
                self.missing.discard(node.id)
                self._changes += [Remove("missing", node.id), Remove("away", node.id)]
                events.append(ev.NodeReturned(at, node.id))
        return events

    def changes(self) -> list[Change]:
        """Return the documents that have changed since this was asked last."""
        changes, self._changes = self._changes, []
        return changes

    def _lost(self, at: float, nodes: Nodes, index: int) -> list[ev.Event]:
        """Note that a node is missing; also a drained one, lest an operator takes it back."""
        node = nodes.cluster.nodes[index].id
        self.missing.add(node)
        self._changes.append(Put("missing", node, ""))
        return [] if index in nodes.down else [ev.NodeLost(at, node)]


def require_matching_nodes(cluster: Cluster, found: Cluster) -> None:
    """Refuse to go on with a cluster of which every node has other devices than before."""
    devices = {node.id: node.devices for node in cluster.nodes}
    for node in found.nodes:
        if devices.get(node.id, node.devices) == node.devices:
            return
    node = found.nodes[0]
    raise UsageError(
        f"node {node.id!r} has devices {_counted(node.devices)} now and had"
        f" {_counted(devices[node.id])}; use another data directory, or give the node another name"
    )


def _counted(devices: Sequence[str]) -> str:
    return ",".join(f"{kind}={devices.count(kind)}" for kind in dict.fromkeys(devices))


def _tuples(kept: Sequence[object]) -> tuple[str, tuple[str, ...], str]:
    name, devices, rack = kept
    assert isinstance(devices, list)
    return str(name), tuple(devices), str(rack)
