"""Runs production modules on the simulated machine, disk, network and clock."""

import asyncio
import builtins
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.faults.machine.disk import Disk
from tests.faults.machine.machine import Machine
from tests.faults.machine.network import Network
from tests.faults.machine.virtual_time import SimulatedThread
from tests.faults.system.jobs import Jobs

from fairlead import atomic_file, failpoints
from fairlead.engines.keeper import keeper, orphans, output, start, supervisor
from fairlead.engines.keeper.confinement import cgroup, members
from fairlead.job import checkpoint, emulated_speed, gang_exit, lease, leased_run
from fairlead.job.copies import merging
from fairlead.live import clock, event_stream, journal, rounds
from fairlead.live.copies import merges
from fairlead.live.inputs import batches
from fairlead.live.nodes import inventory

_MISSING = object()
_SERVER_LOCK_S, _POLL_S = 2.0, 0.05
"""seconds for which a thread of the server waits for a lock, and between its attempts"""


class _PatchedModule:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _NullLock:
    """Lock without effect: simulated threads never interrupt one another."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Thread:
    """Replacement of ``threading.Thread`` for simulated threads."""

    def __init__(self, machine: Machine, target: Callable[[], object]) -> None:
        self._machine = machine
        assert machine.me is not None
        self._done = machine.threads.event()
        self._thread = SimulatedThread(machine.me, lambda: self._run(target))

    def _run(self, target: Callable[[], object]) -> None:
        try:
            target()
        finally:
            if not self._thread.killed:
                self._done.set()

    def start(self) -> None:
        self._machine.threads.start(self._thread)

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)


class _Selector(selectors.BaseSelector):
    """Selector of a keeper; members print nothing, so it only waits."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._keys: dict[Any, Any] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        self._keys[fileobj] = (events, data)

    def unregister(self, fileobj: Any) -> Any:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout:
            self._machine.threads.sleep(timeout)
        return []

    def get_map(self) -> Any:
        return self._keys


class _NullLog:
    """Log that discards its events."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _LockBusyError(BaseException):
    """A lock is held: the server's thread would wait for it."""


def _wait_patiently(machine: Machine, for_s: float) -> None:
    if machine.me is None:
        raise _LockBusyError
    machine.threads.sleep(10 * for_s)


async def _in_server(machine: Machine, call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call in a thread of the server; repeat it, as is allowed, while a lock is held."""
    until = machine.loop.time() + _SERVER_LOCK_S
    while True:
        await asyncio.sleep(0.0)
        try:
            return call(*arguments)
        except _LockBusyError:
            if machine.loop.time() >= until:
                raise checkpoint.LockHeldError("another process holds the lock") from None
            await asyncio.sleep(_POLL_S)


@contextmanager
def on_simulated_machine(
    machine: Machine,
    disk: Disk,
    network: Network,
    jobs: Jobs,
    *,
    point: Callable[[str], None],
    wall: Callable[[], float],
    events_per_state: int,
) -> Iterator[None]:
    """Patch the live system, engine, keepers and job library to run on these."""
    threads, loop = machine.threads, machine.loop
    times = _PatchedModule(time, monotonic=loop.time, time=wall, sleep=threads.sleep)
    threading_module = SimpleNamespace(
        Lock=_NullLock,
        Event=threads.event,
        Thread=lambda target, **_: _Thread(machine, target),
        current_thread=lambda: threads.running,
        main_thread=lambda: machine.me.threads[0] if machine.me else None,
    )
    # Waiting for other ranks' files takes thousands of polls; a tenth of them is enough.
    patient = _PatchedModule(times, sleep=lambda for_s: _wait_patiently(machine, for_s))
    names: list[tuple[Any, str, Any]] = [
        (failpoints, "point", point),
        (atomic_file, "os", disk),
        (atomic_file, "open", disk.open_file),
        (checkpoint, "os", disk),
        (checkpoint, "open", disk.open_file),
        (checkpoint, "fcntl", disk),
        (checkpoint, "time", patient),
        (merging, "os", disk),
        (merges, "asyncio", _PatchedModule(asyncio, to_thread=partial(_in_server, machine))),
        (merges, "log", _NullLog()),
        (gang_exit, "os", disk),
        (gang_exit, "open", disk.open_file),
        (lease, "time", times),
        (lease, "threading", threading_module),
        (lease.Lease, "_post", lambda self, _, body: network.post(self.number, self._token, body)),
        (emulated_speed, "time", times),
        (leased_run, "time", times),
        (leased_run, "threading", threading_module),
        (leased_run, "signal", _signals(machine)),
        (leased_run, "_print_to_log", lambda _: None),
        (keeper, "os", _keeper_os(machine)),
        (keeper, "signal", _signals(machine)),
        (keeper, "time", times),
        (keeper, "RedactedLog", lambda *_: _NullLog()),
        (members, "subprocess", _PatchedModule(subprocess, Popen=jobs.spawn_member)),
        (members, "_LIBC", _NullLog()),
        (cgroup, "create", lambda *_: None),
        (output, "os", _keeper_os(machine)),
        (
            output,
            "selectors",
            _PatchedModule(selectors, DefaultSelector=lambda: _Selector(machine)),
        ),
        (output, "time", times),
        (keeper, "HeldPorts", lambda: SimpleNamespace(rendezvous=lambda _: {})),
        (keeper, "has_stop_handler", machine.has_stop_handler),
        (keeper, "processes_of", lambda _: {}),
        (keeper, "reap_adopted", lambda _: None),
        (keeper, "_TICK_S", 0.5),
        (orphans, "is_keeper", lambda *_: True),
        (orphans, "os", _keeper_os(machine)),
        (start, "os", _engine_os(machine, jobs)),
        (supervisor, "os", _engine_os(machine, jobs)),
        (supervisor, "kill_orphans", lambda directory: jobs.kill_orphans(int(directory.name))),
        (supervisor, "signal", _PatchedModule(signal, pidfd_send_signal=_sender(machine))),
        (clock, "time", times),
        (batches, "log", _NullLog()),
        (event_stream, "log", _NullLog()),
        (journal, "log", _NullLog()),
        (inventory, "log", _NullLog()),
        (rounds, "log", _NullLog()),
        (journal, "_EVENTS_PER_STATE", events_per_state),
    ]
    with _replaced(names):
        yield


@contextmanager
def _replaced(names: list[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(owner, name, owner.__dict__.get(name, _MISSING)) for owner, name, _ in names]
    for owner, name, value in names:
        # A renamed function would otherwise run unpatched on the real machine.
        assert hasattr(owner, name) or hasattr(builtins, name), f"{owner} has no {name}"
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _signals(machine: Machine) -> _PatchedModule:
    def handle(number: int, handler: Any) -> None:
        me = machine.me
        assert me is not None
        me.handlers[number] = handler
        if number == signal.SIGTERM and me.parent is not None and me.parent.stop_requested:
            machine.expect_stop_forwarded(me)

    def unmask(*_: Any) -> None:
        assert machine.me is not None
        machine.unmask(machine.me)

    return _PatchedModule(signal, signal=handle, pthread_sigmask=unmask)


def _sender(machine: Machine) -> Callable[[int, int], None]:
    return lambda descriptor, number: machine.send_from_outside(
        machine.of_descriptor(descriptor), number
    )


def _keeper_os(machine: Machine) -> _PatchedModule:
    def kill_group(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid in machine.processes:
            machine.kill_slowly(machine.processes[pid])

    return _PatchedModule(
        os,
        environ={},
        getpid=lambda: machine.me.pid if machine.me else 1,
        pipe=lambda: (machine.open_pipe(), 0),
        close=lambda _: None,
        set_blocking=lambda *_: None,
        killpg=kill_group,
    )


def _engine_os(machine: Machine, jobs: Jobs) -> _PatchedModule:
    def kill(pid: int, number: int) -> None:
        if pid not in machine.processes:
            raise ProcessLookupError(pid)
        machine.send_from_outside(machine.processes[pid], number)

    return _PatchedModule(
        os,
        posix_spawn=lambda _, command, *__, **___: jobs.spawn_keeper(command[-1]),
        pidfd_open=machine.open_descriptor,
        close=lambda _: None,
        waitpid=lambda pid, _: machine.wait_for(pid),
        kill=kill,
        killpg=kill,
    )
