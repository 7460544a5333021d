"""Selection of Slurm's nodes: those of a partition or a reservation that have GPUs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.engines.shared.nodes.registry import NodeRegistry
from fairlead.engines.slurm.commands import Slurm, SlurmError, SlurmNode
from fairlead.engines.slurm.nodes import inventory
from fairlead.model.cluster import Cluster, Node

log = structlog.get_logger("fairlead.slurm")


@dataclass
class NodeSelection:
    """Keeps the list of the nodes that the engine uses, and finds those that join."""

    slurm: Slurm
    path: Path
    """file of the node registry"""
    partition: str
    """empty: Slurm's default partition at the first poll"""
    reservation: str
    """used instead of the partition unless empty"""
    registry: NodeRegistry = field(default_factory=NodeRegistry)
    """all nodes ever selected"""
    addresses: dict[str, str] = field(default_factory=dict)
    """node → its network address"""
    _reserved: frozenset[str] | None = None
    """nodes of the reservation at the last successful request"""

    async def find(self) -> Cluster:
        """Return the current nodes, or the registered ones if Slurm is unreachable."""
        known = NodeRegistry.read(self.path)
        try:
            nodes = await self.locate()
            await self._register(nodes, await self._selected(nodes))
        except SlurmError as error:
            if not known.nodes:
                raise
            log.warning("slurm.unreachable", error=str(error))
            self.registry = known
        return self.registry.cluster

    async def locate(self) -> list[SlurmNode]:
        """Update the addresses of nodes; return all of Slurm's nodes."""
        nodes = await self.slurm.nodes()
        self.addresses = {node.name: node.address for node in nodes}
        return nodes

    async def refresh(self) -> tuple[Mapping[str, SlurmNode], list[Node]]:
        """Return Slurm's selected nodes by name, and the nodes registered since the last call."""
        listed = {node.name: node for node in await self.locate()}
        selected = await self._selected(listed.values())
        nodes = {name: node for name, node in listed.items() if name in selected}
        before = len(self.registry.nodes)
        if any(self.registry.gained_devices(name, each.devices) for name, each in nodes.items()):
            await self._register(listed.values(), selected)
        return nodes, list(self.registry.nodes[before:])

    async def _selected(self, nodes: Iterable[SlurmNode]) -> frozenset[str]:
        if self.reservation:
            return await self._in_reservation()
        self.partition = self.partition or await self.slurm.default_partition()
        return frozenset(node.name for node in nodes if self.partition in node.partitions)

    async def _in_reservation(self) -> frozenset[str]:
        try:
            self._reserved = frozenset(await self.slurm.reserved_nodes(self.reservation))
        except SlurmError as error:
            # One failed command must not remove all nodes.
            if self._reserved is None:
                raise
            log.warning("slurm.no-reservation", error=str(error))
        return self._reserved

    async def _register(self, nodes: Iterable[SlurmNode], selected: Collection[str]) -> None:
        self.registry = inventory(self.path, nodes, await self.slurm.racks(), selected)
