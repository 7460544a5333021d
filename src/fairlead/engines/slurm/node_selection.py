"""Which of Slurm's nodes are ours to use: those of a partition or a reservation that have GPUs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.engines.shared.nodes.registry import registered
from fairlead.engines.slurm.commands import Slurm, SlurmError, SlurmNode
from fairlead.engines.slurm.nodes import inventory
from fairlead.model.cluster import Cluster, Node

log = structlog.get_logger("fairlead.slurm")


@dataclass
class Choice:
    """Knows the nodes of ours, and which joined last."""

    slurm: Slurm
    path: Path
    """where the nodes are written down"""
    partition: str
    """empty: Slurm's default partition, the one that is so when it is first asked"""
    reservation: str
    """used instead of the partition unless it is empty"""
    known: tuple[Node, ...] = ()
    """all nodes that were ever ours, in the order of their devices' numbers"""
    addresses: dict[str, str] = field(default_factory=dict)
    """node → where it is reached"""
    _reserved: frozenset[str] | None = None
    """the reservation's nodes when it could last be asked for"""

    async def find(self) -> Cluster:
        """Return the nodes as they are now; those found last if Slurm's controller is away."""
        known = registered(self.path)
        try:
            nodes = await self.locate()
            await self._register(nodes, await self._selected(nodes))
        except SlurmError as error:
            if not known:
                raise
            log.warning("slurm.unreachable", error=str(error))
            self.known = known
        return Cluster(self.known)

    async def locate(self) -> list[SlurmNode]:
        """Learn where nodes are reached; return all of Slurm's."""
        nodes = await self.slurm.nodes()
        self.addresses = {node.name: node.address for node in nodes}
        return nodes

    async def look(self) -> tuple[Mapping[str, SlurmNode], list[Node]]:
        """Return the nodes that are ours, by name, and which of them have joined since."""
        listed = {node.name: node for node in await self.locate()}
        ours = await self._selected(listed.values())
        before = {node.id for node in self.known}
        if any(listed[name].devices for name in ours & listed.keys() - before):
            await self._register(listed.values(), ours)
        joined = [node for node in self.known if node.id not in before]
        return {name: node for name, node in listed.items() if name in ours}, joined

    async def _selected(self, nodes: Iterable[SlurmNode]) -> frozenset[str]:
        if self.reservation:
            return await self._in_reservation()
        self.partition = self.partition or await self.slurm.default_partition()
        return frozenset(node.name for node in nodes if self.partition in node.partitions)

    async def _in_reservation(self) -> frozenset[str]:
        try:
            self._reserved = frozenset(await self.slurm.reserved_nodes(self.reservation))
        except SlurmError as error:
            # A command that failed once must not make all nodes look gone.
            if self._reserved is None:
                raise
            log.warning("slurm.no-reservation", error=str(error))
        return self._reserved

    async def _register(self, nodes: Iterable[SlurmNode], ours: Collection[str]) -> None:
        self.known = inventory(self.path, nodes, await self.slurm.racks(), ours).nodes
