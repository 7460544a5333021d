"""A simulated machine: processes that die, signals that come late, devices that are watched."""

import random
import signal
from collections.abc import Callable, Collection
from typing import Any

from tests.faults.machine.virtual_time import Fibres, SimulatedThread, VirtualLoop

from fairlead.engines.base import Order

_FIRST_PID = 1 << 30
"""above all that a real machine gives out, so that none is ever mistaken for it"""


_DYING_S = 0.3
_PASSES_ON_S = 0.8
"""in which a keeper passes on to its members what it was told"""


class Process:
    """A simulated process: fibres that live and die together."""

    def __init__(self, pid: int, name: str, parent: "Process | None", nodes: frozenset[str]):
        self.pid = pid
        self.name = name
        self.parent = parent
        self.nodes = nodes
        """where it runs: cut off when any of these is"""
        self.fibres: list[SimulatedThread] = []
        self.children: list[Process] = []
        self.alive = True
        self.returncode: int | None = None
        self.handlers: dict[int, Any] = {}
        self.masked = False
        self.pending: list[int] = []
        self.descriptors: list[int] = []
        self.order: Order | None = None
        self.rank = -1
        """in its gang; -1 for a keeper"""
        self.valid_until = 0.0
        """when its lease is over, as far as it was told"""
        self.stuck_until = 0.0
        """when a call returns that nobody answers"""
        self.wants_saved = 0
        """steps that must be saved before it makes another: it has asked for that"""
        self.ends_epoch = -1
        """steps after which it saves because its data has come to an end"""
        self.leave_requested = False
        self.lease_end_announced = False
        self.began_at = 0.0
        self.ended_at = 0.0
        self.stalled_s = 0.0
        self.started_by = 0
        """the server, of those that came one after the other, whose child it is"""
        self.reaped = False
        self.asking = False
        """it waits for the server's answer"""
        self.asks_by = 0.0
        """when it is to ask the server again: as it was told, or soon when nobody answered"""
        self.woken = False
        """it was sent the signal to look whether it is to leave while it waited for an answer"""
        self.stop_requested = False
        """it was sent the signal to stop"""
        self.told_steps = -1
        """of which the server has heard from it"""
        self.error: BaseException | None = None
        """what it died of, if it was not killed"""
        self.send_signal: Callable[[int], None]

    def poll(self) -> int | None:
        """Return its exit status, None while it lives."""
        return self.returncode

    @property
    def node(self) -> str:
        """The node of its own device."""
        assert self.order is not None
        return self.order.devices[self.rank][0]

    @property
    def lease(self) -> int:
        """The lease for which it runs."""
        assert self.order is not None
        return self.order.lease


class Machine:
    """Starts and ends processes and passes signals."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.fibres = Fibres(loop, self._fibre_ended)
        self.processes: dict[int, Process] = {}
        """those that live, and those whose end nobody has asked for yet"""
        self.cut: set[str] = set()
        """nodes that nobody outside can reach"""
        self.taken: dict[str, tuple[int, ...]] = {}
        """node → which of its devices others hold"""
        self.servers = 0
        """how many have been started so far"""
        self.keepers: dict[int, Process] = {}
        """all that were ever started"""
        self.on_exit: Callable[[Process], None] = lambda _: None
        self.on_missed_stop: Callable[[Process], None] = lambda _: None
        """told of a member that hears nothing of what its keeper was told"""
        self._next_pid = _FIRST_PID
        self._next_descriptor = _FIRST_PID

    # -- life and death -------------------------------------------------------------------------

    def spawn(
        self,
        name: str,
        target: Callable[[Process], object],
        *,
        parent: Process | None = None,
        nodes: Collection[str] = (),
        after_s: float = 0.0,
    ) -> Process:
        """Start a process whose main thread makes this call after a while."""
        self._next_pid += 1
        process = Process(self._next_pid, name, parent, frozenset(nodes))
        process.send_signal = lambda number: self.send(process, number)
        self.processes[process.pid] = process
        if parent is not None:
            parent.children.append(process)
        main = SimulatedThread(process, lambda: target(process))
        if after_s > 0:
            self.loop.call_later(after_s, self._start, process, main)
        else:
            self._start(process, main)
        return process

    def _start(self, process: Process, fibre: SimulatedThread) -> None:
        if process.alive:
            self.fibres.start(fibre)

    @property
    def me(self) -> Process | None:
        """The process that runs now; None when the server does."""
        fibre = self.fibres.running
        return None if fibre is None else fibre.process

    def kill(self, process: Process, code: int = -signal.SIGKILL) -> None:
        """End a process and, as the kernel does for us, the children of a keeper."""
        self.loop.call_soon(self._end, process, code)

    def _end(self, process: Process, code: int) -> None:
        if not process.alive:
            return
        process.alive = False
        process.returncode, process.ended_at = code, self.loop.time()
        for fibre in process.fibres:
            if not fibre.done:
                self.fibres.kill(fibre)
        for child in process.children:
            # The kernel kills them at once, but a process may take a while to be gone.
            self.loop.call_later(
                self.rng.uniform(0.0, _DYING_S), self._end, child, -signal.SIGKILL
            )
        self.processes.pop(process.pid, None)
        for descriptor in process.descriptors:
            reader = self.loop.readers.get(descriptor)
            if reader is not None:
                self.loop.call_soon(self._read, descriptor)
        self.on_exit(process)

    def _read(self, descriptor: int) -> None:
        reader = self.loop.readers.get(descriptor)
        if reader is not None:
            reader()

    def _fibre_ended(self, fibre: SimulatedThread, error: BaseException | None) -> None:
        process: Process = fibre.process
        if fibre is not process.fibres[0]:
            return
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 1
        elif error is not None:
            code = 1
            process.error = error
        self.kill(process, code)

    def end_all(self) -> None:
        """End every process: the machine loses power, or the run is over."""
        for process in list(self.processes.values()):
            self._end(process, -signal.SIGKILL)

    # -- signals --------------------------------------------------------------------------------

    def send(self, process: Process, number: int) -> None:
        """Send a signal; it arrives when the receiver gets to run."""
        self.loop.call_soon(self._deliver, process, number)

    def send_from_outside(self, process: Process, number: int) -> None:
        """Send a signal from the server: not to a node that is cut off."""
        if not process.nodes & self.cut:
            self.send(process, number)

    def kill_slowly(self, process: Process) -> None:
        """Kill a process that takes a while to be gone."""
        late_s = self.rng.uniform(0.0, 2 * _DYING_S)
        self.loop.call_later(late_s, self._deliver, process, signal.SIGKILL)

    def wait_for(self, pid: int) -> None:
        """Take note of the end of a keeper that the server has started and killed."""
        process = self.keepers[pid]
        if process.started_by != self.servers:
            raise ChildProcessError(pid)
        self._end(process, -signal.SIGKILL)  # whoever waits blocks until then
        process.reaped = True

    def _deliver(self, process: Process, number: int) -> None:
        if not process.alive:
            return
        if number == signal.SIGTERM:
            process.stop_requested = True
        if number == signal.SIGKILL:
            self._end(process, -number)
        elif process.masked:
            process.pending.append(number)
        else:
            handler = process.handlers.get(number, signal.SIG_DFL)
            if handler == signal.SIG_DFL:
                self._end(process, -number)
            elif handler != signal.SIG_IGN:
                # A member that is sent a signal asks at once whether it is to leave.
                process.woken = process.asking
                process.asks_by = min(process.asks_by, self.loop.time())
                handler(number, None)
        if number == signal.SIGTERM:
            for child in process.children:
                self.expect_told(child)

    def expect_told(self, member: Process) -> None:
        """Look in a moment whether a member was told to stop as its keeper was.

        Of a gang only those are that listen.
        """
        assert member.order is not None
        if signal.SIGTERM in member.handlers or len(member.order.devices) == 1:
            self.loop.call_later(_PASSES_ON_S, self._look_if_told, member, member.stalled_s)

    def _look_if_told(self, member: Process, stalled_s: float) -> None:
        keeper = member.parent
        assert keeper is not None
        whole = keeper.alive and all(one.alive for one in keeper.children)
        if whole and not member.stop_requested and member.stalled_s == stalled_s:
            self.on_missed_stop(member)

    def unmask(self, process: Process) -> None:
        """Let signals through that have waited."""
        process.masked = False
        pending, process.pending = process.pending, []
        for number in pending:
            handler = process.handlers.get(number, signal.SIG_DFL)
            if callable(handler):
                handler(number, None)

    def listens(self, pid: int) -> bool:
        """Tell whether a process has a handler for the signal to stop."""
        return pid not in self.processes or signal.SIGTERM in self.processes[pid].handlers

    # -- descriptors ----------------------------------------------------------------------------

    def open_descriptor(self, pid: int) -> int:
        """Return a descriptor of a process that becomes readable at its end."""
        process = self.processes.get(pid)
        if process is None:
            raise ProcessLookupError(pid)
        self._next_descriptor += 1
        process.descriptors.append(self._next_descriptor)
        return self._next_descriptor

    def open_pipe(self) -> int:
        """Return a descriptor of a pipe through which nothing comes."""
        self._next_descriptor += 1
        return self._next_descriptor

    def of_descriptor(self, descriptor: int) -> Process:
        """Return the process of a descriptor."""
        for process in self.processes.values():
            if descriptor in process.descriptors:
                return process
        raise ProcessLookupError(descriptor)
