"""The nodes of the simulated cluster: cut off, missing, exchanged, joining, used by others."""

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.model.cluster import Cluster, Node

if TYPE_CHECKING:
    from tests.faults.world import World


class SimulatedNodes:
    """What becomes of nodes, and what the engine of the server that is up says of it."""

    def __init__(self, world: "World", cluster: Cluster) -> None:
        self._world, self._machine = world, world.machine
        self.cluster = cluster
        """all that have ever joined, as they were then"""
        self.absent: dict[str, Node | None] = {}
        """nodes that the engine does not have → what it has under that name, if anything"""
        self.taken_at = 0.0
        """when others last came or went"""
        self.cut_until: dict[str, float] = {}
        """node → when it was last found again"""

    def has(self) -> Cluster:
        """Return what the engine has now."""
        now = (self.absent.get(node.id, node) for node in self.cluster.nodes)
        return Cluster(tuple(node for node in now if node is not None), self.cluster.details)

    def join_like(self, name: str) -> str:
        """Have a node join with another's devices; servers that start later find it there."""
        nodes = self.cluster.nodes
        alike = next(node for node in nodes if node.id == name)
        node = replace(alike, id=f"{name}-{len(nodes)}")
        self.cluster = self.cluster.with_node(node)
        self._tell(node)
        return node.id

    def miss(self, name: str, for_s: float, *, exchanged: bool) -> None:
        """Have the engine be without a node, or with another of its name, when it starts next."""
        away = self._machine.cut | self._world.checks.may_be_removed | set(self.absent)
        there = {node.id: node for node in self.cluster.nodes if node.id not in away}
        if name not in there or len(there) < 2 or self._world.quiet:
            return  # without a node that it knows a server does not start
        node = there[name]
        other = replace(node, devices=(*node.devices, node.devices[0]))
        self.absent[name] = other if exchanged else None
        self._world.loop.call_later(for_s, self.unhide_node, name)

    def unhide_node(self, name: str) -> None:
        """Have the engine find a node that it was without."""
        if name in self.absent:
            del self.absent[name]
            self._tell(next(node for node in self.cluster.nodes if node.id == name))

    def _tell(self, node: Node) -> None:
        if self._world.server is not None:
            self._world.server.absent.discard(node.id)  # it may not have asked yet who is there
            self._world.server.engine.join(node)

    def take(self, name: str, numbers: tuple[int, ...]) -> None:
        """Have others hold these devices of a node, and none of its others."""
        self._machine.taken[name] = numbers
        self.taken_at = self._world.loop.time()
        if self._world.server is not None:
            self._world.server.engine.take(name, numbers)

    def cut(self, name: str, for_s: float) -> None:
        """Have nobody reach a node for a while; the engine gives up what runs there."""
        world = self._world
        if name in self._machine.cut or name in self.absent or world.quiet:
            return
        world.touch()
        self._machine.cut.add(name)
        # The engine ends the parts of gangs that it reaches; those that did not begin never do.
        members = [one for one in world.jobs.members() if name in one.nodes]
        begun = {one.lease for one in members}
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
        """Reach a node again: the engine ends what it gave up there, then reports it."""
        if name not in self._machine.cut:
            return
        world = self._world
        world.touch()
        self._machine.cut.discard(name)
        self.cut_until[name] = world.loop.time()
        if world.server is not None:
            world.server.engine.cut.discard(name)
            world.loop.call_soon(world.server.engine.find, name)

    def heal(self) -> None:
        """Have all nodes there, and all their devices to itself."""
        for name in sorted(self._machine.cut):
            self.find(name)
        for name in sorted(self.absent):
            self.unhide_node(name)
        for name in sorted(self._machine.taken):
            self.take(name, ())
