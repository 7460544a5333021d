"""Controls the nodes of a live cluster: requests of operators and reports of the engine."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.nodes import NodeTable
from fairlead.core.queries import Queries
from fairlead.engines.base import DevicesRead, DevicesTakenReport, NodeDown, NodeJoined, NodeUp
from fairlead.live.clock import Clock
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.nodes.device_health import DeviceHealth
from fairlead.live.nodes.inventory import NodeReconciler
from fairlead.model import events as ev
from fairlead.model.cluster import Node
from fairlead.model.errors import ProtocolError
from fairlead.store import Audit, Change, Put, Remove, User
from fairlead.store.audit import name_of

_FAIRLEAD = "fairlead"
"""author of drains without an operator, in the audit trail"""


class NodeController:
    """Turns requests and reports about nodes into events.

    A node is used while the engine has it and no operator has drained it.
    """

    def __init__(
        self, scheduler: Scheduler[Any], inventory: NodeReconciler, clock: Clock, inbox: Inbox
    ) -> None:
        self._scheduler, self._queries = scheduler, Queries(scheduler)
        self._inventory, self._clock, self._inbox = inventory, clock, inbox
        self.drained: set[str] = set()
        """nodes that an operator has drained; only an operator returns them"""
        self.divided: set[str] = set()
        """drained nodes with a GPU whose MIG layout is being changed"""
        self._down: set[str] = set()
        """nodes that the engine has reported down"""
        self._taken: dict[str, tuple[int, ...]] = {}
        """node → devices that the engine has reported as taken or missing"""
        self.health = DeviceHealth()

    def restore_down_nodes(self) -> None:
        """Treat nodes that the engine had lost before a restart as down until it reports them."""
        nodes = self._scheduler.nodes
        down = nodes.down_names
        # A node that is down and also drained or removed is known only from its document.
        known = down - self.drained - nodes.removed_names
        known |= down & self._inventory.down_before_restart
        self._down = known - self._inventory.missing

    def count_faulty(self, node: str) -> int:
        """Return the number of a node's devices that are closed because of a fault only."""
        return len(self.health.faulty_on(node).difference(self._taken.get(node, ())))

    # -- operators ------------------------------------------------------------------------------

    async def drain(self, node: str, user: User) -> None:
        """Preempt all leases on a node and start nothing there until an operator returns it."""
        audit = Audit(self._clock.now(), user, "drain", node)

        def changes() -> Sequence[Change]:
            self.drained.add(node)
            return [audit, Put("drain", node, name_of(user))]

        await self._inbox.submit(lambda at: [ev.NodeDrained(at, node)], changes)

    async def cordon(self, node: str, user: User) -> None:
        """Start nothing new on a node."""
        audit = Audit(self._clock.now(), user, "cordon", node)
        await self._inbox.submit(lambda at: [ev.NodeCordoned(at, node)], [audit])

    async def return_node(self, node: str, user: User) -> None:
        """Use a drained or cordoned node again, as soon as the engine has it.

        Its faulty devices are used again, too, until their next fault.
        """
        audit = Audit(self._clock.now(), user, "return", node)

        def make(at: float) -> Sequence[ev.Event]:
            if node in self.divided:
                raise ProtocolError(f"node {node!r}: a GPU is being divided: try again then")
            if node in self._scheduler.nodes.removed_names:
                fix = f"`fairlead nodes restore {node}` undoes this"
                raise ProtocolError(f"node {node!r} was removed; {fix}")
            events: list[ev.Event] = []
            if node in self._scheduler.nodes.cordoned_names:
                events.append(ev.NodeCordoned(at, node, cordoned=False))
            unavailable = node in self._down | self._inventory.missing
            if not unavailable:
                events.append(ev.NodeReturned(at, node))
            if self.health.faulty_on(node):
                events.append(ev.DevicesTaken(at, node, self._taken.get(node, ())))
            return events

        def changes() -> Sequence[Change]:
            self.drained.discard(node)
            return [audit, Remove("drain", node), *self.health.accept(node)]

        await self._inbox.submit(make, changes)

    async def remove(self, node: str, user: User) -> list[str]:
        """Remove a node until it is restored; refuse while leases run and it is not drained.

        Returns the jobs that can run on no other node: they stay queued for an equal one.
        """
        audit = Audit(self._clock.now(), user, "remove", node)
        before: set[str] = set()
        stranded: list[str] = []

        def make(at: float) -> Sequence[ev.Event]:
            if self._queries.has_leases_on(node) and node not in self.drained:
                raise ProtocolError(f"jobs run on node {node!r}: drain it first")
            before.update(self._queries.stranded_jobs())
            return [ev.NodeRemoved(at, node)]

        def changes() -> Sequence[Change]:
            stranded.extend(job for job in self._queries.stranded_jobs() if job not in before)
            return [audit]

        await self._inbox.submit(make, changes)
        return stranded

    async def restore(self, node: str, user: User) -> None:
        """Undo the removal of a node: use it again, as soon as the engine has it.

        If it was drained before its removal, it is drained again.
        """
        audit = Audit(self._clock.now(), user, "restore", node)

        def make(at: float) -> Sequence[ev.Event]:
            restored = ev.NodeRestored(at, node)
            unavailable = node in self._down | self._inventory.missing
            returned = [] if unavailable else [ev.NodeReturned(at, node)]
            return self._skip_drained([restored, *returned])

        await self._inbox.submit(make, [audit])

    # -- the engine -----------------------------------------------------------------------------

    def reconcile_inventory(self, nodes: Sequence[Node]) -> None:
        """Post the differences to the nodes that the engine has as it starts."""
        self._compare(self._inventory.reconcile_all, nodes)

    def lose_all(self, at: float) -> None:
        """Post the loss of all nodes at an earlier time; those that the engine has return."""

        def make(now: float) -> Sequence[ev.Event]:
            return self._inventory.lose_all(min(at, now), self._scheduler.nodes)

        self._inbox.post(make, self._inventory.changes)

    def report(
        self, report: NodeDown | NodeUp | NodeJoined | DevicesTakenReport | DevicesRead
    ) -> None:
        """Post the events of an engine's report about one node."""
        match report:
            case NodeDown(node):
                self._down.add(node)
                self._inbox.post(lambda at: [ev.NodeLost(at, node)], [Put("away", node, "")])
            case NodeUp(node):
                self._down.discard(node)
                self._inbox.post(
                    lambda at: self._returned_events(at, node), [Remove("away", node)]
                )
            case NodeJoined(joined):
                self._compare(self._inventory.reconcile, [joined])
            case DevicesRead(node):
                self._drain_faulty(node, report)
            case DevicesTakenReport(node, numbers, gone):
                self._taken[node] = tuple(sorted(numbers))
                self._inbox.post(lambda at: self._taken_events(at, node, numbers, gone))

    def _drain_faulty(self, node: str, report: DevicesRead) -> None:
        """Preempt the leases on devices that have become faulty, and start nothing there."""
        now = self._clock.now()
        faults = self.health.record(report, now)
        if not faults:
            return
        changes = [
            *self.health.changes(node, faults),
            *(
                Audit(now, _FAIRLEAD, "drain", f"{node} device {number}", fault.reason)
                for number, fault in faults.items()
            ),
        ]
        self._inbox.post(
            lambda at: self._taken_events(at, node, self._taken.get(node, ()), gone=True), changes
        )

    def _compare(
        self,
        compare: Callable[[float, NodeTable, Sequence[Node]], Sequence[ev.Event]],
        present: Sequence[Node],
    ) -> None:
        def make(at: float) -> Sequence[ev.Event]:
            events = compare(at, self._scheduler.nodes, present)
            self._down -= self._inventory.missing  # those return when the engine has them
            return self._skip_drained(events)

        self._inbox.post(make, self._inventory.changes)

    def _returned_events(self, at: float, node: str) -> Sequence[ev.Event]:
        if node in self._inventory.missing or node in self._scheduler.nodes.removed_names:
            return []  # another machine answers under this name, or an operator removed it
        return self._skip_drained([ev.NodeReturned(at, node)])

    def _skip_drained(self, events: Sequence[ev.Event]) -> Sequence[ev.Event]:
        """Return the events without returns of drained nodes."""
        return [
            event
            for event in events
            if not (isinstance(event, ev.NodeReturned) and event.node in self.drained)
        ]

    def _taken_events(
        self, at: float, node: str, numbers: tuple[int, ...], gone: bool
    ) -> Sequence[ev.Event]:
        faulty = self.health.faulty_on(node)
        taken = tuple(sorted({*numbers, *faulty}))
        if self._scheduler.nodes.taken_on(node) == taken:
            return []  # known already, as after a restart
        return [ev.DevicesTaken(at, node, taken, gone or bool(faulty))]
