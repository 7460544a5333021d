"""Nodes of a live cluster: what operators and the engine say of them."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.nodes import Nodes
from fairlead.engines.base import DevicesTaken, NodeDown, NodeJoined, NodeUp
from fairlead.live.clock import Clock
from fairlead.live.inbox import Queue
from fairlead.live.nodes.inventory import NodeReconciler
from fairlead.model import events as ev
from fairlead.model.cluster import Node
from fairlead.model.errors import ProtocolError
from fairlead.store import Audit, Change, Put, Remove


class NodeController:
    """Turns what is said of nodes into events.

    A node is used when the engine has it and no operator has drained it.
    """

    def __init__(
        self, scheduler: Scheduler[Any], inventory: NodeReconciler, clock: Clock, queue: Queue
    ) -> None:
        self._scheduler, self._inventory = scheduler, inventory
        self._clock, self._queue = clock, queue
        self.drained: set[str] = set()
        """nodes that an operator has drained: only an operator takes them back"""
        self._down: set[str] = set()
        """nodes that the engine has told to be down"""

    def rebuilt(self) -> None:
        """Take what the engine had lost before a restart as lost until it says otherwise."""
        nodes = self._scheduler.nodes
        down = {nodes.cluster.nodes[number].id for number in nodes.down - nodes.removed}
        # Of those that are drained, too, only a document says so.
        away = (down - self.drained) | (down & self._inventory.away)
        self._down = away - self._inventory.missing

    # -- operators ------------------------------------------------------------------------------

    async def drain(self, node: str, who: str) -> None:
        """Have all jobs leave a node, and use it no more until an operator takes it back."""
        audit = Audit(self._clock.now(), who, "drain", node)

        def changes() -> Sequence[Change]:
            self.drained.add(node)
            return [audit, Put("drain", node, who)]

        await self._queue.do(lambda at: [ev.NodeLost(at, node)], changes)

    async def cordon(self, node: str, who: str) -> None:
        """Start nothing new on a node."""
        audit = Audit(self._clock.now(), who, "cordon", node)
        await self._queue.do(lambda at: [ev.NodeCordoned(at, node)], [audit])

    async def take_back(self, node: str, who: str) -> None:
        """Use a drained or cordoned node again, as soon as the engine has it."""
        audit = Audit(self._clock.now(), who, "return", node)

        def make(at: float) -> Sequence[ev.Event]:
            nodes, away = self._scheduler.nodes, self._down | self._inventory.missing
            events: list[ev.Event] = []
            if node in {nodes.cluster.nodes[number].id for number in nodes.cordoned}:
                events.append(ev.NodeCordoned(at, node, cordoned=False))
            return events if node in away else [*events, ev.NodeReturned(at, node)]

        await self._queue.do(make, lambda: self._clear_drain(node, audit))

    async def remove(self, node: str, who: str) -> list[str]:
        """Give a node up for good; refuse while jobs run there that nobody told to leave.

        Returns the jobs that can run nowhere any more: they wait for others of its kind.
        """
        audit = Audit(self._clock.now(), who, "remove", node)
        jobs = self._scheduler.jobs
        before: set[int] = set()
        stranded: list[str] = []

        def make(at: float) -> Sequence[ev.Event]:
            there = self._scheduler.leases.holder[:, self._scheduler.nodes.devices_on(node)] >= 0
            if node not in self.drained and there.any():
                raise ProtocolError(f"jobs run on node {node!r}: drain it first")
            before.update(jobs.stranded)
            return [ev.NodeRemoved(at, node)]

        def changes() -> Sequence[Change]:
            stranded.extend(jobs.ids[job] for job in jobs.stranded if job not in before)
            return self._clear_drain(node, audit)

        await self._queue.do(make, changes)
        return stranded

    def _clear_drain(self, node: str, audit: Audit) -> Sequence[Change]:
        self.drained.discard(node)
        return [audit, Remove("drain", node)]

    # -- the engine -----------------------------------------------------------------------------

    def reconcile_inventory(self, found: Sequence[Node]) -> None:
        """Take in which nodes the engine has, and no others, as it starts."""
        self._compare(self._inventory.reconcile_all, found)

    def report(self, report: NodeDown | NodeUp | NodeJoined | DevicesTaken) -> None:
        """Take in what the engine says of one node."""
        match report:
            case NodeDown(node):
                self._down.add(node)
                self._queue.put(lambda at: [ev.NodeLost(at, node)], [Put("away", node, "")])
            case NodeUp(node):
                self._down.discard(node)
                self._queue.put(lambda at: self._back(at, node), [Remove("away", node)])
            case NodeJoined(found):
                self._compare(self._inventory.found, [found])
            case DevicesTaken(node, numbers):
                self._queue.put(lambda at: self._taken_events(at, node, numbers))

    def _compare(
        self,
        compare: Callable[[float, Nodes, Sequence[Node]], Sequence[ev.Event]],
        found: Sequence[Node],
    ) -> None:
        def make(at: float) -> Sequence[ev.Event]:
            events = compare(at, self._scheduler.nodes, found)
            self._down -= self._inventory.missing  # those are back when the engine has them
            return self._skip_drained(events)

        self._queue.put(make, self._inventory.changes)

    def _back(self, at: float, node: str) -> Sequence[ev.Event]:
        if node in self._inventory.missing:
            return []  # what answers is another than the scheduler knows
        return self._skip_drained([ev.NodeReturned(at, node)])

    def _skip_drained(self, events: Sequence[ev.Event]) -> Sequence[ev.Event]:
        """Return the events without those that would take back what an operator has drained."""
        return [
            event
            for event in events
            if not (isinstance(event, ev.NodeReturned) and event.node in self.drained)
        ]

    def _taken_events(self, at: float, node: str, numbers: tuple[int, ...]) -> Sequence[ev.Event]:
        now = tuple(sorted(numbers))
        if self._scheduler.nodes.taken_on(node) == now:
            return []  # known before, as after a restart
        return [ev.DevicesTaken(at, node, now)]
