"""Simulated server that may die at any moment, with a faulty store and engine."""

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
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.live.executors import BackgroundTasks
from fairlead.live.planning.recovery import RecoveredPlan
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.store import FencedError, Put

_CLOSE_NODE_S = 0.3
"""seconds between the closing of a node and the delivery of a plan"""


class ServerDiedError(BaseException):
    """The server process was killed here."""


class Server:
    """One run of the server, from its start to its death."""

    def __init__(
        self, store: Any, config: LiveConfig, checks: Checks, rng: random.Random, *, trouble: float
    ) -> None:
        self.rng = rng
        self.trouble = trouble
        """probability that a call or report is late or duplicated"""
        self.checks = checks
        self.store = store
        self.up = True
        self.number = 0
        """number of this server among all started ones"""
        self.started = False
        self.starts_at = 0.0
        self.started_at = 0.0
        self.absent: set[str] = set()
        """nodes missing from its engine's inventory at the start"""
        self.dies_at: int | None = None
        """gates to pass before it dies at one"""
        self.no_descriptor = False
        """whether opening the next keeper's descriptor fails"""
        self.plans_fail = 0
        """number of the next plans whose computation fails"""
        self.on_moves: Callable[[list[int]], None] | None = None
        """called with the leases that the next plan stops, before the scheduler gets the plan"""
        self.dies_at_stop = False
        """whether it dies just before it preempts a lease"""
        self.on_death: Callable[[str], None] = lambda _: None
        self.next_write: str | None = None
        """moment at which the next write to the store fails: before or after"""
        self.expects_violation = False
        self.in_flight: tuple[Callable[..., Any], tuple[object, ...]] | None = None
        self.clients: dict[asyncio.Task[Any], None] = {}  # in order: a run can be repeated
        token = store.acquire("server")
        assert token is not None
        self.engine = FaultyEngine(self, config)
        self.live = CheckedLive(
            store, self.engine, config, token, clock=Clock(), workers=FaultyWorkers(self)
        )
        self.live.server = self
        self.live.tasks = CheckedTasks(self)

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
        """Delay a call, with a gate before and after it."""
        self.gate()
        if self.trouble and self.rng.random() < self.trouble:
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.05, 0.4)))
            self.gate()

    def die(self) -> None:
        """Cancel everything; a write in flight may or may not be applied."""
        self.up = False
        self.checks.note("the server dies")
        live = self.live
        for task in (*live.tasks._tasks, *self.clients):
            task.cancel()
        live.rounds.stop()
        self.engine.detach()
        if self.in_flight is not None and self.rng.random() < 0.5:
            call, arguments = self.in_flight
            self.in_flight = None
            call(*arguments)
        self.store.close()

    def write_late(self) -> None:
        """Attempt writes after another server took over, including one that was in flight."""
        token, far = self.live.token, 1 << 40
        writes: list[tuple[Callable[..., Any], tuple[object, ...]]] = [
            (self.store.append, (token, far, ["late"])),
            (self.store.append, (token, 0, [], [Put("job", "late", "")])),
            (self.store.save_state, (token, far, "{}")),
        ]
        if self.in_flight is not None:
            writes.append(self.in_flight)
        for call, arguments in writes:
            try:
                call(*arguments)
            except FencedError:
                continue
            self.checks.require(False, "a replaced server could still write")
        self.store.close()

    def watch(self, client: "asyncio.Task[Any]") -> None:
        """Cancel a client's call when the server dies."""
        self.clients[client] = None
        client.add_done_callback(self._client_done)

    def _client_done(self, client: "asyncio.Task[Any]") -> None:
        self.clients.pop(client, None)
        failure = None if client.cancelled() else client.exception()
        if failure is not None and not isinstance(failure, ServerDiedError):
            text = "".join(traceback.format_exception(failure))
            self.checks.require(False, f"a client's call failed: {text}")


class CheckedLive(Live):
    """Driver that checks every event."""

    server: Server
    before: "CheckedLive | None" = None
    """driver of the previous server, if it died between two batches"""
    busy = False

    @property
    def loop(self) -> Any:
        """The loop that runs the timers."""
        return asyncio.get_running_loop()

    def _handle(self, event: ev.Event) -> list[cmd.Command]:
        commands = super()._handle(event)
        checks = self.server.checks
        if self.server.started:
            checks.note(event, *commands)
            checks.core.handled(self, event, commands)
            checks.commands.handled(self, event, commands)
            checks.plans.handled(self, event, commands)
        return commands

    async def _process_batch(self, first: Any) -> None:
        self.busy = True
        config, change = self.policy.config, self.policy.change
        await super()._process_batch(first)
        # Two changes at once may lead back to the same config.
        if self.policy.config is not config or self.policy.change is not change:
            self._begin_checks()
        self.busy = False
        self.server.checks.server.settled()
        self.server.checks.commands.settled(self)

    def _report(self, report: Report) -> None:
        checks = self.server.checks
        if isinstance(report, NodeUp):
            checks.server.reached(report.node)
        elif isinstance(report, NodeJoined):
            checks.server.found(report.node.id)
        super()._report(report)
        if isinstance(report, NodeDown):
            checks.server.unreached(report.node)
            self.inbox.post(lambda _: checks.server.lost(report.node))

    def _recover(self) -> float:
        at = super()._recover()
        before, checks = self.before, self.server.checks
        if before is not None and before.started and not before.busy:
            same = state_bytes(before.scheduler) == state_bytes(self.scheduler)
            checks.require(same, "the state differs after a restart")
            same = before.counters.saved() == self.counters.saved()
            same &= before.journal.seq == self.journal.seq
            checks.require(same, "the counts differ after a restart")
            same = {**before.specs} == {**self.specs}
            checks.require(same, "the job specifications differ after a restart")
        self.before = None
        checks.server.rebuilt(self)
        checks.commands.rebuilt(self)
        return at

    def _switch_config(self) -> None:
        super()._switch_config()
        self._begin_checks()

    def _begin_checks(self) -> None:
        """Compare later events with the state under the config in force."""
        self.server.checks.commands.begin(self)
        self.server.checks.plans.begin(self)

    @property
    def started(self) -> bool:
        """Whether the server finished its start."""
        return self.server.started


class CheckedTasks(BackgroundTasks):
    """Tasks of the driver; the failure of one is a violation, or kills the server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def _finished(self, task: "asyncio.Task[None]") -> None:
        super()._finished(task)
        if task.cancelled() or task.exception() is None or not self._server.up:
            return
        if not self._server.expects_violation:
            text = "".join(traceback.format_exception(task.exception()))
            self._server.checks.require(False, f"the driver failed: {text}")
        self._server.on_death("driver failed")


class FaultyWorkers:
    """Calls the store and the planner with delays and failures."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def write(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Write to the store."""
        server = self._server
        server.in_flight = call, arguments
        await server.wait()
        fails, server.next_write = server.next_write, None
        if fails == "before":
            server.expects_violation = True
            raise OSError(errno.ENOSPC, "no space left for the simulated store")
        server.in_flight = None  # a later death rolls the transaction back
        answer = call(*arguments)
        if fails == "after":
            server.expects_violation = True
            raise OSError(errno.EIO, "connection to the simulated store lost")
        await server.wait()
        return answer

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Compute a plan."""
        await self._server.wait()
        if self._server.trouble and self._server.rng.random() < 0.1:
            await asyncio.sleep(self._server.rng.uniform(0.0, 6.0))
        if self._server.plans_fail > 0:
            self._server.plans_fail -= 1
            raise ArithmeticError("the simulated planner found no plan")
        answer = call(*arguments)
        plan = answer.plan if isinstance(answer, RecoveredPlan) else answer and answer[0]
        if self._server.on_moves is not None and plan is not None and len(plan.stop):
            on_moves, self._server.on_moves = self._server.on_moves, None
            on_moves(plan.stop.tolist())
            await asyncio.sleep(_CLOSE_NODE_S)
        return answer

    def close(self) -> None:
        """Wait for calls in flight."""
