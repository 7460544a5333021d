"""Simulated machine: processes, delayed signals and process descriptors."""

import random
import signal
from collections.abc import Callable, Collection
from typing import Any

from tests.faults.machine.virtual_time import SimulatedThread, SimulatedThreads, VirtualLoop

from fairlead.engines.base import LaunchOrder

_FIRST_PID = 1 << 30
"""above all real pids, so that no simulated pid is ever mistaken for one"""


_DYING_S = 0.3
_FORWARD_S = 0.8
"""seconds within which a keeper forwards a stop signal to its members"""


class Process:
    """Simulated process: threads that start and end together."""

    def __init__(self, pid: int, name: str, parent: "Process | None", nodes: frozenset[str]):
        self.pid = pid
        self.name = name
        self.parent = parent
        self.nodes = nodes
        """its nodes; unreachable when any of them is"""
        self.threads: list[SimulatedThread] = []
        self.children: list[Process] = []
        self.alive = True
        self.returncode: int | None = None
        self.handlers: dict[int, Any] = {}
        self.masked = False
        self.pending: list[int] = []
        self.descriptors: list[int] = []
        self.order: LaunchOrder | None = None
        self.rank = -1
        """rank in its gang; -1 for a keeper"""
        self.valid_until = 0.0
        """end of its lease according to the last renewal"""
        self.stuck_until = 0.0
        """time when an unanswered call returns"""
        self.save_requested_at = 0
        """steps that must be saved before the next step, by an explicit checkpoint call"""
        self.ends_epoch = -1
        """steps after which it saves at the end of an epoch"""
        self.leave_requested = False
        self.lease_end_announced = False
        self.began_at = 0.0
        self.ended_at = 0.0
        self.stalled_s = 0.0
        self.started_by = 0
        """number of the server whose child it is"""
        self.reaped = False
        self.renewing = False
        """whether it waits for the server's answer"""
        self.renews_by = 0.0
        """latest time of its next renewal"""
        self.woken = False
        """whether it received the wake-up signal while waiting for an answer"""
        self.stop_requested = False
        """whether it received the stop signal"""
        self.reported_steps = -1
        """steps in its last renewal that reached the server"""
        self.error: BaseException | None = None
        """the exception that ended it, None if it was killed"""
        self.send_signal: Callable[[int], None]

    def poll(self) -> int | None:
        """Return the exit status, None while the process is alive."""
        return self.returncode

    @property
    def node(self) -> str:
        """The node of its device."""
        assert self.order is not None
        return self.order.devices[self.rank][0]

    @property
    def lease(self) -> int:
        """The lease that it belongs to."""
        assert self.order is not None
        return self.order.lease


class Machine:
    """Starts and ends processes and delivers signals."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.threads = SimulatedThreads(loop, self._thread_ended)
        self.processes: dict[int, Process] = {}
        """pid → live process"""
        self.unreachable: set[str] = set()
        """nodes that are unreachable from outside"""
        self.taken: dict[str, tuple[int, ...]] = {}
        """node → its taken devices"""
        self.servers = 0
        """number of servers started so far"""
        self.keepers: dict[int, Process] = {}
        """pid → keeper, for all keepers ever started"""
        self.on_exit: Callable[[Process], None] = lambda _: None
        self.on_missed_stop: Callable[[Process], None] = lambda _: None
        """called for a member that does not get its keeper's stop signal"""
        self._next_pid = _FIRST_PID
        self._next_descriptor = _FIRST_PID

    # -- processes ------------------------------------------------------------------------------

    def spawn(
        self,
        name: str,
        target: Callable[[Process], object],
        *,
        parent: Process | None = None,
        nodes: Collection[str] = (),
        after_s: float = 0.0,
    ) -> Process:
        """Start a process whose main thread makes this call after a delay."""
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

    def _start(self, process: Process, thread: SimulatedThread) -> None:
        if process.alive:
            self.threads.start(thread)

    @property
    def me(self) -> Process | None:
        """The current process; None when the server runs."""
        thread = self.threads.running
        return None if thread is None else thread.process

    def kill(self, process: Process, code: int = -signal.SIGKILL) -> None:
        """End a process and, as the kernel does, the children of a keeper."""
        self.loop.call_soon(self._end, process, code)

    def _end(self, process: Process, code: int) -> None:
        if not process.alive:
            return
        process.alive = False
        process.returncode, process.ended_at = code, self.loop.time()
        for thread in process.threads:
            if not thread.done:
                self.threads.kill(thread)
        for child in process.children:
            # The kernel kills them at once, but a process may take a while to disappear.
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

    def _thread_ended(self, thread: SimulatedThread, error: BaseException | None) -> None:
        process: Process = thread.process
        if thread is not process.threads[0]:
            return
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 1
        elif error is not None:
            code = 1
            process.error = error
        self.kill(process, code)

    def end_all(self) -> None:
        """End every process, at a power failure or at the end of the run."""
        for process in list(self.processes.values()):
            self._end(process, -signal.SIGKILL)

    # -- signals --------------------------------------------------------------------------------

    def send(self, process: Process, number: int) -> None:
        """Send a signal; it arrives on the receiver's next turn."""
        self.loop.call_soon(self._deliver, process, number)

    def send_from_outside(self, process: Process, number: int) -> None:
        """Send a signal from the server; processes on unreachable nodes do not get it."""
        if not process.nodes & self.unreachable:
            self.send(process, number)

    def kill_slowly(self, process: Process) -> None:
        """Kill a process that takes a while to disappear."""
        late_s = self.rng.uniform(0.0, 2 * _DYING_S)
        self.loop.call_later(late_s, self._deliver, process, signal.SIGKILL)

    def wait_for(self, pid: int) -> None:
        """Reap a keeper that the server has started and killed."""
        process = self.keepers[pid]
        if process.started_by != self.servers:
            raise ChildProcessError(pid)
        self._end(process, -signal.SIGKILL)  # the caller blocks until then
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
                # A member renews at once when it receives a signal.
                process.woken = process.renewing
                process.renews_by = min(process.renews_by, self.loop.time())
                handler(number, None)
        if number == signal.SIGTERM:
            for child in process.children:
                self.expect_stop_forwarded(child)

    def expect_stop_forwarded(self, member: Process) -> None:
        """Check soon that a member got its keeper's stop signal.

        Members of a gang get it only if they have a handler.
        """
        assert member.order is not None
        if signal.SIGTERM in member.handlers or len(member.order.devices) == 1:
            self.loop.call_later(_FORWARD_S, self._check_stop_forwarded, member, member.stalled_s)

    def _check_stop_forwarded(self, member: Process, stalled_s: float) -> None:
        keeper = member.parent
        assert keeper is not None
        whole = keeper.alive and all(child.alive for child in keeper.children)
        if whole and not member.stop_requested and member.stalled_s == stalled_s:
            self.on_missed_stop(member)

    def unmask(self, process: Process) -> None:
        """Deliver pending signals and unblock new ones."""
        process.masked = False
        pending, process.pending = process.pending, []
        for number in pending:
            handler = process.handlers.get(number, signal.SIG_DFL)
            if callable(handler):
                handler(number, None)

    def has_stop_handler(self, pid: int) -> bool:
        """Return whether a process has a handler for the stop signal."""
        return pid not in self.processes or signal.SIGTERM in self.processes[pid].handlers

    # -- descriptors ----------------------------------------------------------------------------

    def open_descriptor(self, pid: int) -> int:
        """Return a process descriptor that becomes readable when the process ends."""
        process = self.processes.get(pid)
        if process is None:
            raise ProcessLookupError(pid)
        self._next_descriptor += 1
        process.descriptors.append(self._next_descriptor)
        return self._next_descriptor

    def open_pipe(self) -> int:
        """Return the descriptor of a pipe that stays empty."""
        self._next_descriptor += 1
        return self._next_descriptor

    def of_descriptor(self, descriptor: int) -> Process:
        """Return the process of a descriptor."""
        for process in self.processes.values():
            if descriptor in process.descriptors:
                return process
        raise ProcessLookupError(descriptor)
