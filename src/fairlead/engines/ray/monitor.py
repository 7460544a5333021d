"""Monitor of leases and nodes on Ray: follows each node agent, polls Ray's tables.

An agent answers at least every second. When it falls silent, or Ray reports its node dead, the
leases on its node are lost. While Ray itself is unreachable nothing is declared lost until
``head_within_s`` has passed: the head may return.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from fairlead.engines.base import Ended, NodeJoined, Report
from fairlead.engines.ray.connection import RayConnection, RayError
from fairlead.engines.ray.lease_table import RayLeaseTable
from fairlead.engines.ray.node_agent import AgentReports
from fairlead.engines.ray.nodes import (
    GPU,
    RayNode,
    RayNodeStatus,
    latest_by_name,
    taken_devices,
)
from fairlead.engines.shared.nodes.registry import NodeRegistry, keeps_devices
from fairlead.model.cluster import Node

log = structlog.get_logger("fairlead.ray")

_LIVENESS_POLL_S = 0.25
_REPORTS_TIMEOUT_S = 1.0
"""seconds that an agent without reports waits before it answers"""
_FIRST_START_SILENCES = 6
"""allowed silences (multiples of ``silence_s``) while a node's first agent starts"""
_RESTART_SILENCES = 2
"""allowed silences while an agent starts that replaces a dead one"""
_RETRY_S = 0.3
_AGENT_START_TIMEOUT_S = 60.0
"""seconds for the start and the first answer of an agent"""


@dataclass
class AgentLink:
    """The monitor's view of one node through its agent."""

    name: str
    node: str = ""
    """Ray's ID of the node whose agent is followed"""
    heard_at: float = 0.0
    """monotonic time of the last answer"""
    silences: int = _FIRST_START_SILENCES
    """allowed silences (multiples of ``silence_s``) before the node is lost"""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    alive: frozenset[int] = frozenset()
    """leases with a running keeper on the node"""


@dataclass
class RayMonitor:
    """Watches nodes and leases, and reports changes to the lease table's queue."""

    ray: RayConnection
    table: RayLeaseTable
    register: Callable[[Iterable[RayNode]], NodeRegistry]
    """adds nodes to the node registry, and returns it"""
    status: RayNodeStatus
    accelerators: Sequence[str]
    silence_s: float
    poll_s: float
    head_within_s: float
    registry: NodeRegistry = field(default_factory=NodeRegistry)
    """all nodes ever registered"""
    complete: bool = False
    """all leases are in the table, so other placement groups with our prefix are orphans"""

    def __post_init__(self) -> None:
        self.links: dict[str, AgentLink] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._answered_at: float | None = None
        """monotonic time of Ray's last answer to a poll"""
        self._unreachable_since: float | None = None
        self.removed: dict[int, Ended] = {}
        """open lease without a directory → its end, reported once no node runs it"""
        self._without_group: set[int] = set()
        """leases without a placement group at the last poll"""

    def start(self) -> None:
        """Start the monitoring tasks."""
        if self._tasks:
            return
        for loop in (
            self._repeat(self.poll_ray, self.poll_s),
            self._repeat(self._check_liveness, _LIVENESS_POLL_S),
        ):
            self._tasks.append(asyncio.create_task(loop))
        for node in self.registry.machines:
            self._add(node)

    def _add(self, node: Node) -> None:
        link = self.links[node.id] = AgentLink(node.id, heard_at=time.monotonic())
        self._tasks.append(asyncio.create_task(self._follow_agent(link)))

    async def close(self) -> None:
        """Stop monitoring."""
        for task in self._tasks:
            task.cancel()
        await self.table.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(self, poll: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            try:
                await poll()
            except (RayError, OSError) as error:
                log.warning("ray.unreachable", error=str(error))
            await asyncio.sleep(every_s)

    # -- node agents ----------------------------------------------------------------------------

    async def _follow_agent(self, link: AgentLink) -> None:
        """Receive the reports of a node's agent, forever."""
        while True:
            node = self.table.nodes.get(link.name)
            if node is None or not node.alive or self.ray.since is None:
                await asyncio.sleep(_RETRY_S)
                continue
            if node.id != link.node:
                link.node, link.heard_at = node.id, time.monotonic()
                link.silences = _FIRST_START_SILENCES
            try:
                await self._receive_reports(link, node)
            except (RayError, OSError) as error:
                link.ready.clear()
                log.warning("ray.node-agent", node=link.name, error=str(error))
                if link.silences == 1 and "ActorDied" in str(error):
                    link.silences = _RESTART_SILENCES
                await asyncio.sleep(_RETRY_S)

    async def _receive_reports(self, link: AgentLink, node: RayNode) -> None:
        home, table = self.table.home(link.name), self.table
        table.forget_received(link.name)
        last = await self.ray.call(
            node.id,
            "reconcile",
            home,
            table.started_on(link.name),
            table.transfer is not None,
            within_s=_AGENT_START_TIMEOUT_S,
        )
        if GPU in node.resources.values():
            table.in_background(self.ray.ask("prestart_worker", node.id))
        first = True
        while first or link.ready.is_set():  # a node that was declared lost is reconciled again
            # The first answer lists the running keepers: only then is the node ready.
            wait_s = 0.0 if first else _REPORTS_TIMEOUT_S
            within_s = _REPORTS_TIMEOUT_S + self.silence_s
            answer: AgentReports = await self.ray.call(
                node.id, "reports_after", home, last, wait_s, within_s=within_s
            )
            link.heard_at, link.silences = time.monotonic(), 1
            link.alive, last = answer.alive, answer.last
            table.receive(link.name, answer.reports, link.ready.clear)
            if first:
                link.ready.set()
                first = False

    # -- liveness -------------------------------------------------------------------------------

    async def _check_liveness(self) -> None:
        now = time.monotonic()
        answers = self.ray.since is not None and self._answered_at is not None
        if answers and now - (self._answered_at or 0.0) <= self.silence_s + self.poll_s:
            self._unreachable_since = None
        elif self._unreachable_since is None:
            self._unreachable_since = now
        for node in self.registry.machines:
            self._check_node(node, self.links[node.id], now)
        self.table.kill_overdue(now)
        self._report_removed()

    def _report_removed(self) -> None:
        """Report open leases without a directory as lost, once all nodes have stopped them."""
        if self._unreachable_since is not None:
            return
        nodes, links = self.table.nodes, self.links.values()
        alive = [link for link in links if link.name in nodes and nodes[link.name].alive]
        if self.removed and all(link.ready.is_set() for link in alive):
            for lease in self.removed.keys() - {lease for link in alive for lease in link.alive}:
                self._report_all([self.removed.pop(lease)])

    def _check_node(self, node: Node, link: AgentLink, now: float) -> None:
        listed = self.table.nodes.get(node.id)
        quiet_s = now - max(link.heard_at, self.ray.since or 0.0)
        if self._unreachable_since is not None:
            # Agents may still answer while Ray's head is down; if not, the head may return.
            down_s = now - self._unreachable_since
            if quiet_s > self.silence_s and down_s > self.head_within_s:
                self._declare_lost(link, "Ray is unreachable", now)
        elif listed is None:
            if quiet_s > self.silence_s:
                self._declare_lost(link, f"Ray no longer lists node {node.id}", now)
        elif not listed.alive:
            self._declare_lost(link, f"Ray reports node {node.id} dead", now)
        elif quiet_s > self.silence_s * link.silences:
            if link.ready.is_set() or node.id not in self.status.down:
                self.table.in_background(self.ray.ask("kill_agent", listed.id))
            self._declare_lost(link, f"node {node.id} does not answer", now)
        elif link.ready.is_set() and link.node == listed.id:
            # A node is not up again while a lease that was declared lost still runs on it.
            clean = link.alive <= set(self.table.leases)
            up = keeps_devices(node, listed.devices) and (clean or node.id not in self.status.down)
            self._report_all(self.status.record(node.id, up, now))

    def _declare_lost(self, link: AgentLink, why: str, now: float) -> None:
        """Report a node down and end all leases on it."""
        link.ready.clear()
        self._report_all(self.status.record(link.name, False, now))
        self.table.declare_node_lost(link.name, why)

    def _report_all(self, reports: Sequence[Report]) -> None:
        for report in reports:
            log.info("ray.node", report=str(report))
            for each in self.registry.by_node(report):
                self.table.reports.put_nowait(each)

    # -- Ray's tables ---------------------------------------------------------------------------

    async def poll_ray(self) -> None:
        """Update nodes, taken devices and placement groups from Ray's tables."""
        listed = await self.ray.nodes()
        groups = await self.ray.groups(self.table.prefix)
        self.table.nodes = latest_by_name(RayNode.read(node, self.accelerators) for node in listed)
        self._answered_at = time.monotonic()
        self._register_new_nodes()
        reserved: dict[str, Counter[str]] = {}
        for group in groups:
            for index, node in group["nodes"].items():
                reserved.setdefault(node, Counter()).update(group["bundles"][index])
        for node in self.registry.machines:
            self._update_taken_devices(node, reserved)
        self._reconcile_groups(
            {int(group["name"].removeprefix(self.table.prefix)) for group in groups}
        )

    def _register_new_nodes(self) -> None:
        nodes, gained = self.table.nodes, self.registry.gained_devices
        if not any(node.alive and gained(name, node.devices) for name, node in nodes.items()):
            return
        before = len(self.registry.nodes)
        self.registry = self.register(nodes.values())
        for node in self.registry.nodes[before:]:
            self._report_all([NodeJoined(node)])
            self.status.repeat_if_down(self.registry.machine_of.get(node.id, node.id))
        for machine in self.registry.machines:
            if machine.id not in self.links:
                self._add(machine)

    def _update_taken_devices(self, node: Node, reserved: dict[str, Counter[str]]) -> None:
        listed = self.table.nodes.get(node.id)
        if listed is None or not listed.alive or not keeps_devices(node, listed.devices):
            return
        resources = reserved.get(listed.id, Counter())
        counts = Counter(
            {name: int(resources[resource]) for name, resource in listed.resources.items()}
        )
        leased = {
            number
            for lease in self.table.leases.values()
            for name, number in lease.order.devices
            if name == node.id
        }
        numbers = taken_devices(node, listed, leased, counts)
        self._report_all(self.status.devices(node.id, numbers))

    def _reconcile_groups(self, groups: set[int]) -> None:
        """Remove placement groups without a lease; stop leases that have lost their group."""
        leases = self.table.leases
        if self.complete:
            busy = {lease for link in self.links.values() for lease in link.alive}
            for orphan in groups - set(leases) - busy:
                self.table.release(orphan)
        without = {lease.lease for lease in leases.values() if lease.has_started} - groups
        for number in without & self._without_group:
            lease = leases[number]
            if lease.stop_at is None:
                log.warning("ray.group-lost", lease=number)
                self.table.stop(lease, lease.order.grace_s, "")
        self._without_group = without
