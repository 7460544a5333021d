"""The local engine of a simulated cluster of several nodes: late, doubled, and cut off."""

import asyncio
import errno
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.engines.base import (
    DevicesTaken,
    Ended,
    NodeDown,
    NodeJoined,
    NodeUp,
    Order,
    Progressed,
    Report,
)
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.live.driver import Setting
from fairlead.model.cluster import Cluster, Node

if TYPE_CHECKING:
    from tests.faults.system.server import Server

_NO_ANSWER_S = 0.2
"""after which the engine takes it that a node does not answer"""


class FaultyEngine:
    """The local engine behind calls and reports that are late, doubled or out of order."""

    def __init__(self, server: "Server", setting: Setting) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._local = _Local(setting.data, setting.cluster)
        self._local.server = server
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._nodes_of: dict[int, set[str]] = {}
        self.cut: set[str] = set()
        """nodes that do not answer"""
        self.taken: dict[str, tuple[int, ...]] = {}
        """node → which of its devices others hold"""
        self.given_up: set[int] = set()
        """leases reported as lost with their node: what is left of them is stopped later, unless
        a server before this one gave them up: then adoption stops it, if the node answers"""
        self._told: set[int] = set()
        self._unheard: set[int] = set()
        """leases told to leave by nodes that did not answer: told again when these do"""
        self._joining: dict[str, Report] = {}
        """nodes that this engine has not had before → what to report when nothing is left there"""
        self._listening: asyncio.Task[None] | None = None

    async def inventory(self) -> Cluster:
        """Return the cluster."""
        return await self._local.inventory()

    async def launch(self, order: Order) -> None:
        """Start the processes of a lease."""
        await self._server.wait()
        self._nodes_of[order.lease] = {node for node, _ in order.devices}
        if self.cut & self._nodes_of[order.lease]:
            await asyncio.sleep(_NO_ANSWER_S)
            await self._server.wait()
        if order.lease in self.given_up:  # with its node meanwhile
            return
        if self.cut & self._nodes_of[order.lease]:
            self._give_up(order.lease, "its node does not answer")
            return
        self._local.blind, self._server.no_descriptor = self._server.no_descriptor, False
        try:
            await self._local.launch(order)
        finally:
            self._local.blind = False
        await self._server.wait()

    async def stop(self, lease: int) -> None:
        """Tell a lease to leave."""
        await self._server.wait()
        if self._server.dies_at_stop:
            self._server.dies_at_stop = False
            self._server.dies_at = 0
            self._server.gate()
        if self.cut & self.where(lease):
            self._unheard.add(lease)
        await self._local.stop(lease)

    async def running(self) -> frozenset[int]:
        """Return the leases whose processes live."""
        return await self._local.running()

    async def adopt(self, leases: Collection[int]) -> None:
        """Take over after a restart."""
        await self._server.wait()
        await self._local.adopt(leases)
        for directory in sorted(self._local._root.iterdir()):
            if any(self._is_left(directory, node) for node in self.cut):
                self.given_up.add(int(directory.name))
        scheduler = self._server.live.scheduler
        self._server.live.put(lambda _: self._server.checks.server.missed(self._server.absent))
        for number in sorted(scheduler.nodes.down):
            node = scheduler.cluster.nodes[number].id
            if node not in self._server.absent:
                self.find(node)
        for node in sorted(self.cut):
            # What was lost before is known to be; an engine takes a moment to say it once more.
            self._loop.call_later(self._server.rng.uniform(0.0, 3.0), self._lose_again, node)
        for each in scheduler.cluster.nodes:
            self.take(each.id, self.taken.get(each.id, ()))
        await self._server.wait()

    async def forget(self, leases: Collection[int]) -> None:
        """Clear away what is left of leases that have ended."""
        await self._server.wait()
        await self._local.forget(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield what happens."""
        self._listening = asyncio.ensure_future(self._listen())
        return self._each()

    async def close(self) -> None:
        """Let go."""
        self.let_go()
        await self._local.close()

    def let_go(self) -> None:
        """Hear nothing more."""
        if self._listening is not None:
            self._listening.cancel()
        for descriptor in self._local._pidfds.values():
            self._loop.remove_reader(descriptor)

    def lose(self, node: str) -> None:
        """Report a node as gone, and with it all that runs there."""
        self.cut.add(node)
        self._told.clear()  # who has not heard it before it was cut off again is told again
        self._later(NodeDown(node))
        live = self._server.live
        for lease in sorted(live.leases):
            if node in self.where(lease):
                self._give_up(lease, f"node {node} does not answer")

    def _lose_again(self, node: str) -> None:
        if node in self.cut and self._server.up:
            self.lose(node)

    def find(self, node: str) -> None:
        """Stop what was given up on a node that is back, and report it when nothing is left."""
        if node in self.cut or not self._server.up:
            return
        for lease in sorted(self._unheard):
            if not self.cut & self.where(lease):
                self._unheard.discard(lease)
                self._server.watch(self._loop.create_task(self._local.stop(lease)))
        left = [path for path in sorted(self._local._root.iterdir()) if self._is_left(path, node)]
        for directory in left:
            lease = int(directory.name)
            if lease in self._server.live.leases and not lease_dir.is_alive(directory):
                self._local._report_end(lease)
            elif lease in self.given_up and lease not in self._told:
                self._told.add(lease)
                self._local._stop_stranger(directory)
        if left:
            self._loop.call_later(0.2, self.find, node)
        else:
            self._later(self._joining.pop(node, NodeUp(node)))

    def _is_left(self, directory: Path, node: str) -> bool:
        """Tell whether a lease that was given up may still run on a node."""
        lease = int(directory.name)
        if lease in self._server.live.leases and lease not in self.given_up:
            return False
        if (directory / "exit.json").exists() or not (directory / "order.json").exists():
            return False
        return any(at == node for at, _ in lease_dir.read_order(directory).devices)

    def _give_up(self, lease: int, why: str) -> None:
        self.given_up.add(lease)
        self._later(Ended(lease, "lost", None, why))

    def join(self, node: Node) -> None:
        """Report a node that this engine has never had before."""
        self._joining[node.id] = NodeJoined(node)
        self.find(node.id)

    def take(self, node: str, numbers: tuple[int, ...]) -> None:
        """Report which devices of a node others hold."""
        self.taken[node] = numbers
        self._later(DevicesTaken(node, numbers))

    def where(self, lease: int) -> set[str]:
        """Return the nodes of a lease."""
        if lease not in self._nodes_of:
            scheduler = self._server.live.scheduler
            cluster, leases = scheduler.cluster, scheduler.leases
            mine = (leases.lease[leases.holder] == lease).any(axis=0).nonzero()[0]
            self._nodes_of[lease] = {cluster.nodes[cluster.node_of[d]].id for d in mine}
        return self._nodes_of[lease]

    async def _listen(self) -> None:
        async for report in self._local.reports():
            if isinstance(report, Ended) and report.ending == "finished" and report.steps is None:
                # A job without the library has said before how far it is.
                total = lease_dir.read_order(self._local._directory(report.lease)).total_steps
                self._reports.put_nowait(Progressed(report.lease, float(total or 0)))
            self._later(report)

    def _later(self, report: Report) -> None:
        server, loop = self._server, self._loop
        if not server.trouble or isinstance(report, NodeDown | NodeUp | NodeJoined | DevicesTaken):
            self._reports.put_nowait(report)
            return
        for _ in range(1 + (server.rng.random() < server.trouble)):
            late_s = server.rng.choice((0.0, 0.0, 0.01, 0.2, 1.5))
            loop.call_later(late_s, self._reports.put_nowait, report)

    async def _each(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()


class _Local(LocalEngine):
    """The local engine, which does nothing any more once its server is dead."""

    server: "Server"
    blind = False

    def _follow(self, lease: int, pid: int, *, own: bool) -> None:
        if self.blind:
            self.server.checks.touch([lease])
            raise OSError(errno.EMFILE, "no descriptor is left")
        super()._follow(lease, pid, own=own)

    def _watch(self, lease: int) -> None:
        if self.server.up:
            super()._watch(lease)

    def _stop_stranger(self, directory: Path) -> None:
        if self.server.up:
            super()._stop_stranger(directory)
