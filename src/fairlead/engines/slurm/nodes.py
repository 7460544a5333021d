"""Slurm's nodes: their status, and their place in the node registry.

A node is down when Slurm says so (down, drained, reserved for others), or when its keepers are
silent, which shows long before Slurm notices.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.engines.shared.nodes.registry import (
    NodeRegistry,
    keeps_devices,
    update_registry,
)
from fairlead.engines.shared.nodes.status import NodeStatus
from fairlead.engines.slurm.commands import SlurmJob, SlurmNode
from fairlead.model.cluster import Node

_ANSWER_TIMEOUT_S = 15.0
"""seconds that a node's state may be uncertain in Slurm before the node is lost"""


@dataclass
class SlurmNodeStatus(NodeStatus):
    """Remembers the last report about each node, and the reason why it is down."""

    reserved: bool = False
    """nodes are used under a reservation"""
    silent: set[str] = field(default_factory=set)
    """nodes whose keepers do not answer although Slurm lists their jobs as running"""
    _uncertain_since: dict[str, float] = field(default_factory=dict)
    """node → monotonic time since which its state is uncertain"""

    def update_all(
        self,
        nodes: Mapping[str, SlurmNode],
        known: Iterable[Node],
        jobs: Collection[SlurmJob],
        heard: Mapping[str, bool],
        now: float,
    ) -> list[NodeDown | NodeUp]:
        """Return the reports on nodes that have gone down or come back.

        ``jobs`` are our own; ``heard`` maps nodes with leases to whether a keeper answers.
        """
        held = {job.node for job in jobs if job.state != "PENDING"}
        reports: list[NodeDown | NodeUp] = []
        for node in known:
            listed = nodes.get(node.id)
            if listed is None or not keeps_devices(node, listed.devices):
                up = False
            else:
                up = self._is_up(listed, node.id in held, heard.get(node.id, False), now)
            reports += self.record(node.id, up, now)
        return reports

    def mark_silent(self, name: str, now: float) -> list[NodeDown | NodeUp]:
        """Mark a node down because its keepers do not answer; return the report."""
        self.silent.add(name)
        return self.record(name, False, now)

    def _is_up(self, node: SlurmNode, held: bool, heard: bool, now: float) -> bool:
        availability = node.availability(reserved=self.reserved)
        if availability == "unsure":
            # Heartbeats count for more than Slurm's state; without them the node has some time.
            if heard:
                return node.name not in self.down
            since = self._uncertain_since.setdefault(node.name, now)
            return now - since < _ANSWER_TIMEOUT_S and node.name not in self.down
        self._uncertain_since.pop(node.name, None)
        if availability == "down":
            return False
        if node.name in self.silent:
            # Slurm clears a job only after the node has answered, so the node is back then.
            if held:
                return False
            self.silent.discard(node.name)
        return True


def inventory(
    path: Path, nodes: Iterable[SlurmNode], racks: Mapping[str, str], selected: Collection[str]
) -> NodeRegistry:
    """Add the selected nodes with devices to the node registry, and return it."""
    usable = (node for node in nodes if node.name in selected and node.devices)
    return update_registry(
        path,
        (
            Node(node.name, node.devices, racks.get(node.name) or _rack_feature(node.features))
            for node in usable
        ),
    )


def _rack_feature(features: Iterable[str]) -> str:
    """Return the rack in a feature such as rack-12, for clusters without a topology."""
    return next((f for f in features if f.startswith("rack")), "")
