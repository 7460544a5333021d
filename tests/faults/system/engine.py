"""Local engine of a simulated cluster of several nodes, with delayed and duplicate reports."""

import asyncio
import errno
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.faults.checks.checks import Checks

from fairlead.engines.base import (
    DevicesTakenReport,
    Ended,
    LaunchOrder,
    NodeDown,
    NodeJoined,
    NodeUp,
    Progressed,
    Report,
)
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.model.cluster import Cluster, Node

_NO_ANSWER_S = 0.2
"""seconds after which the engine considers a node unreachable"""


class EngineHost(Protocol):
    """The server that owns an engine, with the faults that it injects there."""

    rng: Random
    checks: Checks
    trouble: float
    up: bool
    absent: set[str]
    no_descriptor: bool
    dies_at: int | None
    dies_at_stop: bool

    @property
    def live(self) -> Live:
        """The server's driver."""

    def gate(self) -> None:
        """Pass a point at which the server may be killed."""

    def watch(self, client: "asyncio.Task[Any]") -> None:
        """Cancel a task when the server dies."""

    async def wait(self) -> None:
        """Delay a call, with a gate before and after it."""


class FaultyEngine:
    """Wraps the local engine; calls and reports are late, duplicated or out of order."""

    def __init__(self, server: EngineHost, config: LiveConfig) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._local = _Local(config.data, config.cluster)
        self._local.server = server
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._nodes_of: dict[int, set[str]] = {}
        self.unreachable: set[str] = set()
        """nodes that do not answer"""
        self.taken: dict[str, tuple[int, ...]] = {}
        """node → its taken devices"""
        self.lost_leases: set[int] = set()
        """leases reported as lost with their node: their processes are stopped later, unless
        an earlier server reported them: then adoption stops them, if the node answers"""
        self._stop_sent: set[int] = set()
        self._stop_pending: set[int] = set()
        """preempted leases on unreachable nodes; the request is repeated on reconnection"""
        self._joining: dict[str, Report] = {}
        """new nodes → report to send once no lost lease is left there"""
        self._listening: asyncio.Task[None] | None = None

    async def inventory(self) -> Cluster:
        """Return the cluster."""
        return await self._local.inventory()

    async def launch(self, order: LaunchOrder) -> None:
        """Start the processes of a lease."""
        await self._server.wait()
        self._nodes_of[order.lease] = {node for node, _ in order.devices}
        if self.unreachable & self._nodes_of[order.lease]:
            await asyncio.sleep(_NO_ANSWER_S)
            await self._server.wait()
        if order.lease in self.lost_leases:  # lost with its node meanwhile
            return
        if self.unreachable & self._nodes_of[order.lease]:
            self._give_up(order.lease, "node unreachable")
            return
        self._local.blind, self._server.no_descriptor = self._server.no_descriptor, False
        try:
            await self._local.launch(order)
        finally:
            self._local.blind = False
        await self._server.wait()

    async def stop(self, lease: int) -> None:
        """Preempt a lease."""
        await self._server.wait()
        if self._server.dies_at_stop:
            self._server.dies_at_stop = False
            self._server.dies_at = 0
            self._server.gate()
        if self.unreachable & self.where(lease):
            self._stop_pending.add(lease)
        await self._local.stop(lease)

    async def running(self) -> frozenset[int]:
        """Return the leases with live processes."""
        return await self._local.running()

    async def adopt(self, leases: Collection[int]) -> None:
        """Adopt running leases after a restart."""
        await self._server.wait()
        await self._local.adopt(leases)
        for directory in sorted(self._local._root.iterdir()):
            if any(self._is_left(directory, node) for node in self.unreachable):
                self.lost_leases.add(int(directory.name))
        scheduler = self._server.live.scheduler
        server = self._server
        server.live.inbox.post(lambda _: server.checks.server.missed(server.absent))
        for number in sorted(scheduler.nodes.down):
            node = scheduler.cluster.nodes[number].id
            if node not in self._server.absent:
                self.find(node)
        for node in sorted(self.unreachable):
            # The core knows these losses; the engine repeats the report after a moment.
            self._loop.call_later(self._server.rng.uniform(0.0, 3.0), self._lose_again, node)
        for each in scheduler.cluster.nodes:
            self.take(each.id, self.taken.get(each.id, ()))
        await self._server.wait()

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the files of ended leases."""
        await self._server.wait()
        await self._local.forget(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield the reports of the engine."""
        self._listening = asyncio.ensure_future(self._listen())
        return self._each()

    async def close(self) -> None:
        """Detach and close the local engine."""
        self.detach()
        await self._local.close()

    def detach(self) -> None:
        """Stop listening to reports and process descriptors."""
        if self._listening is not None:
            self._listening.cancel()
        for descriptor in self._local._pidfds.values():
            self._loop.remove_reader(descriptor)

    def lose(self, node: str) -> None:
        """Report a node as down and its leases as lost."""
        self.unreachable.add(node)
        self._stop_sent.clear()  # members that missed the request get it again
        self._later(NodeDown(node))
        live = self._server.live
        for lease in sorted(live.leases):
            if node in self.where(lease):
                self._give_up(lease, f"node {node} unreachable")

    def _lose_again(self, node: str) -> None:
        if node in self.unreachable and self._server.up:
            self.lose(node)

    def find(self, node: str) -> None:
        """Stop the lost leases on a reconnected node, and report the node when none is left."""
        if node in self.unreachable or not self._server.up:
            return
        for lease in sorted(self._stop_pending):
            if not self.unreachable & self.where(lease):
                self._stop_pending.discard(lease)
                self._server.watch(self._loop.create_task(self._local.stop(lease)))
        left = [path for path in sorted(self._local._root.iterdir()) if self._is_left(path, node)]
        for directory in left:
            lease = int(directory.name)
            if lease in self._server.live.leases and not lease_dir.is_alive(directory):
                self._local._report_end(lease)
            elif lease in self.lost_leases and lease not in self._stop_sent:
                self._stop_sent.add(lease)
                self._local._stop_orphan(directory)
        if left:
            self._loop.call_later(0.2, self.find, node)
        else:
            self._later(self._joining.pop(node, NodeUp(node)))

    def _is_left(self, directory: Path, node: str) -> bool:
        """Return whether a lost lease may still run on a node."""
        lease = int(directory.name)
        if lease in self._server.live.leases and lease not in self.lost_leases:
            return False
        if (directory / "exit.json").exists() or not (directory / "order.json").exists():
            return False
        return any(at == node for at, _ in lease_dir.read_order(directory).devices)

    def _give_up(self, lease: int, reason: str) -> None:
        self.lost_leases.add(lease)
        self._later(Ended(lease, "lost", None, reason))

    def join(self, node: Node) -> None:
        """Report a node that joined."""
        self._joining[node.id] = NodeJoined(node)
        self.find(node.id)

    def take(self, node: str, numbers: tuple[int, ...]) -> None:
        """Report the taken devices of a node."""
        self.taken[node] = numbers
        self._later(DevicesTakenReport(node, numbers))

    def where(self, lease: int) -> set[str]:
        """Return the nodes of a lease."""
        if lease not in self._nodes_of:
            scheduler = self._server.live.scheduler
            cluster, leases = scheduler.cluster, scheduler.leases
            held = (leases.lease[leases.holder] == lease).any(axis=0).nonzero()[0]
            self._nodes_of[lease] = {cluster.nodes[cluster.node_of[d]].id for d in held}
        return self._nodes_of[lease]

    async def _listen(self) -> None:
        async for report in self._local.reports():
            if isinstance(report, Ended) and report.ending == "finished" and report.steps is None:
                # A job without the job library reports its progress before its end.
                total = lease_dir.read_order(self._local._directory(report.lease)).total_steps
                self._reports.put_nowait(Progressed(report.lease, float(total or 0)))
            self._later(report)

    def _later(self, report: Report) -> None:
        server, loop = self._server, self._loop
        if not server.trouble or isinstance(
            report, NodeDown | NodeUp | NodeJoined | DevicesTakenReport
        ):
            self._reports.put_nowait(report)
            return
        for _ in range(1 + (server.rng.random() < server.trouble)):
            late_s = server.rng.choice((0.0, 0.0, 0.01, 0.2, 1.5))
            loop.call_later(late_s, self._reports.put_nowait, report)

    async def _each(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()


class _Local(LocalEngine):
    """Local engine that does nothing after its server has died."""

    server: EngineHost
    blind = False

    def _follow(self, lease: int, pid: int, *, own: bool) -> None:
        if self.blind:
            self.server.checks.touch([lease])
            raise OSError(errno.EMFILE, "no descriptor is left")
        super()._follow(lease, pid, own=own)

    def _recover(self, lease: int) -> None:
        if self.server.up:
            super()._recover(lease)

    def _stop_orphan(self, directory: Path) -> None:
        if self.server.up:
            super()._stop_orphan(directory)
