"""Nodes of the simulated cluster: unreachable, missing, replaced, joining, partly taken."""

from dataclasses import replace
from typing import Protocol

from tests.faults.checks.checks import Checks
from tests.faults.machine.machine import Machine
from tests.faults.machine.virtual_time import VirtualLoop
from tests.faults.system.jobs import Jobs
from tests.faults.system.server import Server

from fairlead.model.cluster import Cluster, Node


class NodeContext(Protocol):
    """Parts of the simulated world that node faults affect."""

    loop: VirtualLoop
    machine: Machine
    checks: Checks
    jobs: Jobs
    quiet: bool

    @property
    def server(self) -> Server | None:
        """The running server, None while it is down."""

    def touch(self) -> None:
        """Mark all running leases as disturbed."""


class SimulatedNodes:
    """Changes nodes and reports the changes through the running server's engine."""

    def __init__(self, world: NodeContext, cluster: Cluster) -> None:
        self._world, self._machine = world, world.machine
        self.cluster = cluster
        """all nodes that ever joined, with their original devices"""
        self.absent: dict[str, Node | None] = {}
        """nodes missing from the engine's inventory → replacement of the same name, or None"""
        self.taken_at = 0.0
        """time of the last change of taken devices"""
        self.cut_until: dict[str, float] = {}
        """node → time of its last reconnection"""

    def inventory(self) -> Cluster:
        """Return the cluster that the engine reports now."""
        present = (self.absent.get(node.id, node) for node in self.cluster.nodes)
        return Cluster(tuple(node for node in present if node is not None), self.cluster.details)

    def join_like(self, name: str) -> str:
        """Add a node with the devices of another; later servers have it in their inventory."""
        nodes = self.cluster.nodes
        template = next(node for node in nodes if node.id == name)
        node = replace(template, id=f"{name}-{len(nodes)}")
        self.cluster = self.cluster.with_node(node)
        self._announce(node)
        return node.id

    def hide_node(self, name: str, for_s: float, *, replaced: bool) -> None:
        """Hide a node, or replace it by another of its name, at the engine's next start."""
        unavailable = (
            self._machine.unreachable | self._world.checks.may_be_removed | set(self.absent)
        )
        available = {node.id: node for node in self.cluster.nodes if node.id not in unavailable}
        if name not in available or len(available) < 2 or self._world.quiet:
            return  # a server needs at least one known node to start
        node = available[name]
        other = replace(node, devices=(*node.devices, node.devices[0]))
        self.absent[name] = other if replaced else None
        self._world.loop.call_later(for_s, self.unhide_node, name)

    def unhide_node(self, name: str) -> None:
        """Return a hidden node to the engine's inventory."""
        if name in self.absent:
            del self.absent[name]
            self._announce(next(node for node in self.cluster.nodes if node.id == name))

    def _announce(self, node: Node) -> None:
        if self._world.server is not None:
            self._world.server.absent.discard(node.id)  # its inventory may still be pending
            self._world.server.engine.join(node)

    def take(self, name: str, numbers: tuple[int, ...]) -> None:
        """Set the devices of a node that users outside Fairlead hold."""
        self._machine.taken[name] = numbers
        self.taken_at = self._world.loop.time()
        if self._world.server is not None:
            self._world.server.engine.take(name, numbers)

    def cut(self, name: str, for_s: float) -> None:
        """Disconnect a node for a while; the engine reports its leases as lost."""
        world = self._world
        if name in self._machine.unreachable or name in self.absent or world.quiet:
            return
        world.touch()
        self._machine.unreachable.add(name)
        # The engine kills reachable members of affected gangs; gangs that have not begun never do.
        members = [member for member in world.jobs.members() if name in member.nodes]
        begun = {member.lease for member in members}
        for keeper in world.jobs.keepers():
            if name in keeper.nodes and len(keeper.nodes) > 1 and keeper.lease not in begun:
                self._machine.kill(keeper)
        for member in members:
            if member.node != name:
                self._machine.kill(member)
        if world.server is not None:
            world.server.engine.lose(name)
        world.loop.call_later(for_s, self.find, name)

    def find(self, name: str) -> None:
        """Reconnect a node: the engine stops its lost leases, then reports the node."""
        if name not in self._machine.unreachable:
            return
        world = self._world
        world.touch()
        self._machine.unreachable.discard(name)
        self.cut_until[name] = world.loop.time()
        if world.server is not None:
            world.server.engine.unreachable.discard(name)
            world.loop.call_soon(world.server.engine.find, name)

    def heal(self) -> None:
        """Reconnect and unhide all nodes, and release all taken devices."""
        for name in sorted(self._machine.unreachable):
            self.find(name)
        for name in sorted(self.absent):
            self.unhide_node(name)
        for name in sorted(self._machine.taken):
            self.take(name, ())
