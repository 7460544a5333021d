"""A server that dies at any moment: the live driver between a store and an engine that fail."""

import asyncio
import errno
import random
import traceback
from collections.abc import Callable
from typing import Any

from tests.faults.checks.checks import Checks
from tests.faults.system.engine import FaultyEngine

from fairlead.core import state_bytes
from fairlead.engines.base import NodeDown, NodeJoined, NodeUp, Report
from fairlead.live.clock import Clock
from fairlead.live.driver import Live, Setting
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.store import FencedError, Put

_HEARS_S = 0.3


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
        self.absent: set[str] = set()
        """nodes that its engine does not have when it starts"""
        self.dies_at: int | None = None
        """how many more gates it passes before it dies at one"""
        self.no_descriptor = False
        """whether the next keeper that it starts cannot be watched"""
        self.plans_fail = 0
        """how many of the next plans cannot be computed"""
        self.on_moves: Callable[[list[int]], None] | None = None
        """told of the leases that the next plan stops, a moment before the scheduler has it"""
        self.dies_at_stop = False
        """whether it dies when it is about to tell a lease to leave"""
        self.on_death: Callable[[str], None] = lambda _: None
        self.next_write: str | None = None
        """how the next write to the store fails"""
        self.expects_violation = False
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
            self.in_flight = None
            call(*given)
        self.store.close()

    def write_late(self) -> None:
        """Have writes arrive after another server took over, one that was under way among them."""
        token, far = self.live.token, 1 << 40
        writes: list[tuple[Callable[..., Any], tuple[object, ...]]] = [
            (self.store.append, (token, far, ["late"])),
            (self.store.append, (token, 0, [], [Put("job", "late", "")])),
            (self.store.save_state, (token, far, "{}")),
        ]
        if self.in_flight is not None:
            writes.append(self.in_flight)
        for call, given in writes:
            try:
                call(*given)
            except FencedError:
                continue
            self.checks.require(False, "a server that was replaced could still write")
        self.store.close()

    def watch(self, client: "asyncio.Task[Any]") -> None:
        """Let a client's call end with the server."""
        self.clients.add(client)
        client.add_done_callback(self._client_done)

    def _client_done(self, client: "asyncio.Task[Any]") -> None:
        self.clients.discard(client)
        failure = None if client.cancelled() else client.exception()
        if failure is not None and not isinstance(failure, ServerDiedError):
            text = "".join(traceback.format_exception(failure))
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

    def _report(self, report: Report) -> None:
        checks = self.server.checks
        if isinstance(report, NodeUp):
            checks.server.reached(report.node)
        elif isinstance(report, NodeJoined):
            checks.server.found(report.node.id)
        super()._report(report)
        if isinstance(report, NodeDown):
            checks.server.unreached(report.node)
            self.put(lambda _: checks.server.lost(report.node))

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
        if not self.server.expects_violation:
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
            server.expects_violation = True
            raise OSError(errno.ENOSPC, "no space left for the simulated store")
        server.in_flight = None  # who dies from here on has its transaction rolled back
        answer = call(*given)
        if fails == "after":
            server.expects_violation = True
            raise OSError(errno.EIO, "the simulated store was cut off")
        await server.wait()
        return answer

    async def plan(self, call: Callable[..., Any], *given: object) -> Any:
        """Compute a plan."""
        await self._server.wait()
        if self._server.trouble and self._server.rng.random() < 0.1:
            await asyncio.sleep(self._server.rng.uniform(0.0, 6.0))
        if self._server.plans_fail > 0:
            self._server.plans_fail -= 1
            raise ArithmeticError("the simulated planner finds no plan")
        answer = call(*given)
        if self._server.on_moves is not None and len(answer[0].stop):
            on_moves, self._server.on_moves = self._server.on_moves, None
            on_moves(answer[0].stop.tolist())
            await asyncio.sleep(_HEARS_S)
        return answer

    def close(self) -> None:
        """Wait for what is under way."""
