"""A server that dies at any moment: the live driver between a store and an engine that fail."""

import asyncio
import errno
import random
import traceback
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

from fairlead.core import state_bytes
from fairlead.engines import lease_dir
from fairlead.engines.base import (
    DevicesTaken,
    Ended,
    NodeDown,
    NodeFound,
    NodeUp,
    Order,
    Progressed,
    Report,
)
from fairlead.engines.local import LocalEngine
from fairlead.live.clock import Clock
from fairlead.live.driver import Live, Setting
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.store import FencedError
from fairlead.testing.faults_checks import Checks


class ServerDiedError(BaseException):
    """The server process was killed here."""


class Server:
    """One run of the server, from its start to its death."""

    def __init__(
        self, store: Any, setting: Setting, checks: Checks, rng: random.Random, *, trouble: float
    ) -> None:
        self.rng = rng
        self.trouble = trouble
        """how likely it is that a call or report is late or comes twice"""
        self.checks = checks
        self.store = store
        self.up = True
        self.number = 0
        """of those that came one after the other"""
        self.started = False
        self.starts_at = 0.0
        self.started_at = 0.0
        self.dies_at: int | None = None
        """how many more gates it passes before it dies at one"""
        self.no_descriptor = False
        """whether the next keeper that it starts cannot be watched"""
        self.dies_at_stop = False
        """whether it dies when it is about to tell a lease to leave"""
        self.on_death: Callable[[str], None] = lambda _: None
        self.next_write: str | None = None
        """how the next write to the store fails"""
        self.expects_break = False
        self.in_flight: tuple[Callable[..., Any], tuple[object, ...]] | None = None
        self.clients: set[asyncio.Task[Any]] = set()
        token = store.acquire("server")
        assert token is not None
        self.engine = FaultyEngine(self, setting)
        self.live = WatchedLive(
            store, self.engine, setting, token, clock=Clock(), workers=FaultyWorkers(self)
        )
        self.live.server = self

    def gate(self) -> None:
        """Pass a point at which the server may be killed."""
        if not self.up:
            raise ServerDiedError
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                self.dies_at = None
                self.on_death("at a gate")
                raise ServerDiedError

    async def wait(self) -> None:
        """Take the time that a call takes, with a gate before and after it."""
        self.gate()
        if self.trouble and self.rng.random() < self.trouble:
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.05, 0.4)))
            self.gate()

    def die(self) -> None:
        """Stop everything where it is; a write that is under way may or may not arrive."""
        self.up = False
        self.checks.note("the server dies")
        live = self.live
        for task in (*live._tasks, *self.clients):
            task.cancel()
        live.rounds.stop()
        self.engine.let_go()
        if self.in_flight is not None and self.rng.random() < 0.5:
            call, given = self.in_flight
            call(*given)
        self.store.close()

    def write_late(self) -> None:
        """Have the write that was under way arrive after another server took over."""
        try:
            self.store.append(self.live.token, 1 << 40, ["late"])
        except FencedError:
            return
        self.checks.require(False, "a server that was replaced could still write")

    def watch(self, client: "asyncio.Task[Any]") -> None:
        """Let a client's call end with the server."""
        self.clients.add(client)
        client.add_done_callback(self._client_done)

    def _client_done(self, client: "asyncio.Task[Any]") -> None:
        self.clients.discard(client)
        if not client.cancelled() and client.exception() is not None:
            text = "".join(traceback.format_exception(client.exception()))
            self.checks.require(False, f"a client's call failed: {text}")


class WatchedLive(Live):
    """The driver, with every event looked at."""

    server: Server
    before: "WatchedLive | None" = None
    """the run before this one, if it died between two batches"""
    busy = False

    @property
    def loop(self) -> Any:
        """The loop that rings."""
        return asyncio.get_running_loop()

    def _handle(self, event: ev.Event) -> list[cmd.Command]:
        commands = super()._handle(event)
        checks = self.server.checks
        if self.server.started:
            checks.note(event, *commands)
            checks.core.handled(self, event, commands)
            checks.said.handled(self, event, commands)
            checks.plans.handled(self, event, commands)
        return commands

    async def _take_in(self, first: Any) -> None:
        self.busy = True
        await super()._take_in(first)
        self.busy = False
        self.server.checks.server.settled()
        self.server.checks.said.settled(self)

    def _rebuild(self) -> float:
        at = super()._rebuild()
        before, checks = self.before, self.server.checks
        if before is not None and before.started and not before.busy:
            same = state_bytes(before.scheduler) == state_bytes(self.scheduler)
            checks.require(same, "the state after a restart is another than before")
            same = before.ledger.saved() == self.ledger.saved() and before._seq == self._seq
            checks.require(same, "the counts after a restart are others than before")
            same = {**before.specs} == {**self.specs}
            checks.require(same, "the specifications after a restart are others than before")
        self.before = None
        checks.server.rebuilt(self)
        checks.said.rebuilt(self)
        return at

    def _go_by_rules(self) -> None:
        super()._go_by_rules()
        self.server.checks.said.begin(self)
        self.server.checks.plans.begin(self)

    @property
    def started(self) -> bool:
        """Whether it came to run at all."""
        return self.server.started

    def _finished(self, task: "asyncio.Task[None]") -> None:
        super()._finished(task)
        if task.cancelled() or task.exception() is None or not self.server.up:
            return
        if not self.server.expects_break:
            text = "".join(traceback.format_exception(task.exception()))
            self.server.checks.require(False, f"the driver broke: {text}")
        self.server.on_death("it broke")


class FaultyWorkers:
    """Makes calls to the store and the planner that take their time, fail, or never return."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def write(self, call: Callable[..., Any], *given: object) -> Any:
        """Make a call to the store."""
        server = self._server
        server.in_flight = call, given
        await server.wait()
        fails, server.next_write = server.next_write, None
        if fails == "before":
            server.expects_break = True
            raise OSError(errno.ENOSPC, "no space left for the simulated store")
        server.in_flight = None  # who dies from here on has its transaction rolled back
        answer = call(*given)
        if fails == "after":
            server.expects_break = True
            raise OSError(errno.EIO, "the simulated store was cut off")
        await server.wait()
        return answer

    async def plan(self, call: Callable[..., Any], *given: object) -> Any:
        """Compute a plan."""
        await self._server.wait()
        if self._server.trouble and self._server.rng.random() < 0.1:
            await asyncio.sleep(self._server.rng.uniform(0.0, 6.0))
        return call(*given)

    def close(self) -> None:
        """Wait for what is under way."""


class FaultyEngine:
    """The local engine behind calls and reports that are late, doubled or out of order."""

    def __init__(self, server: Server, setting: Setting) -> None:
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
        """leases reported as lost with their node: what is left of them is stopped later"""
        """leases that runs of the server before this one gave up are adoption's to stop, if their
        node can be reached then"""
        self._told: set[int] = set()
        self._listening: asyncio.Task[None] | None = None

    async def inventory(self) -> Cluster:
        """Return the cluster."""
        return await self._local.inventory()

    async def launch(self, order: Order) -> None:
        """Start the processes of a lease."""
        await self._server.wait()
        self._nodes_of[order.lease] = {node for node, _ in order.devices}
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
        for number in sorted(scheduler.nodes.down):
            node = scheduler.cluster.nodes[number].id
            self.find(node)
        for node in sorted(self.cut):
            self.lose(node)
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
        for descriptor in self._local._watched.values():
            self._loop.remove_reader(descriptor)

    def lose(self, node: str) -> None:
        """Report a node as gone, and with it all that runs there."""
        self.cut.add(node)
        self._told.clear()  # who has not heard it before it was cut off again is told again
        self._later(NodeDown(node))
        live = self._server.live
        for lease in sorted(live.leases):
            if node in self._where(lease):
                self._give_up(lease, f"node {node} does not answer")

    def find(self, node: str) -> None:
        """Stop what was given up on a node that is back, and report it when nothing is left."""
        if node in self.cut or not self._server.up:
            return
        left = [path for path in sorted(self._local._root.iterdir()) if self._is_left(path, node)]
        for directory in left:
            lease = int(directory.name)
            if not lease_dir.is_alive(directory):
                self._local._report_end(lease)
            elif lease in self.given_up and lease not in self._told:
                self._told.add(lease)
                self._local._stop_stranger(directory)
        if left:
            self._loop.call_later(0.2, self.find, node)
        else:
            self._later(NodeUp(node))

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
        """Report a node that was never there before."""
        self._later(NodeFound(node))

    def take(self, node: str, numbers: tuple[int, ...]) -> None:
        """Report which devices of a node others hold."""
        self.taken[node] = numbers
        self._later(DevicesTaken(node, numbers))

    def _where(self, lease: int) -> set[str]:
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
        if not server.trouble or isinstance(report, NodeDown | NodeUp | NodeFound | DevicesTaken):
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

    server: Server
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
