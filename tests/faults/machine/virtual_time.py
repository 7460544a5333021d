"""Virtual time: an event loop that never waits, and threads that run one at a time on it."""

import asyncio
import heapq
import selectors
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_MOST_TURNS = 100_000
"""of the loop in one run; a few hundred are usual"""


class StalledError(AssertionError):
    """Nothing would ever happen again."""


class _VirtualSelector(selectors.BaseSelector):
    """Selects nothing: to wait is to move the time on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        del timeout
        return []

    def wait(self, for_s: float) -> None:
        """Move the time on, and count how often."""
        self.turns += 1
        if self.turns > _MOST_TURNS:
            raise StalledError("it never comes to rest")
        self.now += for_s

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time; readers wait for the ends of simulated processes."""

    # What the loop of asyncio is made of.
    _scheduled: list[Any]
    _ready: deque[Any]
    _stopping: bool
    _clock_resolution: float

    def __init__(self) -> None:
        self._ahead = _VirtualSelector()
        super().__init__(self._ahead)
        self.readers: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        """Return the virtual time, in seconds from 0."""
        return self._ahead.now

    def count_anew(self) -> None:
        """Let as many turns be made as in a new loop."""
        self._ahead.turns = 0

    def stall(self, for_s: float) -> None:
        """Let time pass in which nobody gets to run."""
        self._ahead.now += for_s

    def skip(self, for_s: float) -> bool:
        """Let time pass at once if nothing is to happen meanwhile; tell whether nothing was."""
        until = self._ahead.now + for_s
        scheduled = self._scheduled
        if self._ready or self._stopping or (scheduled and scheduled[0]._when <= until):
            return False
        self._ahead.wait(until - self._ahead.now)
        return True

    def _run_once(self) -> None:
        """Make one turn as the loop that it is made of does, without looking at descriptors."""
        scheduled, ready, ahead = self._scheduled, self._ready, self._ahead
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:
            if not scheduled:
                raise StalledError("nothing is left to happen")
            ahead.wait(max(scheduled[0]._when - ahead.now, 0.0))
        else:
            ahead.wait(0.0)
        soon = ahead.now + self._clock_resolution
        while scheduled and scheduled[0]._when < soon:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call back when the simulated descriptor can be read."""
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        """Call back no more."""
        return self.readers.pop(fd, None) is not None


class KilledError(BaseException):
    """Unwinds a thread whose process was killed."""


class SimulatedThread:
    """A thread of a simulated process: it runs only while the loop waits for it."""

    def __init__(self, process: Any, target: Callable[[], object]) -> None:
        self.process = process
        self.target = target
        self.ticket = 0
        """counts its pauses, so that nobody wakes it from a later one than he meant"""
        self.worker: _Worker | None = None
        self.killed = False
        self.done = False


class _Worker(threading.Thread):
    """A thread that runs one fibre after the other."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="fairlead-fault-fibre")
        self.go = allocate_lock()
        self.go.acquire()
        self.job: Callable[[], None] | None = None

    def run(self) -> None:
        while True:
            self.go.acquire()
            assert self.job is not None
            self.job()


_idle: list[_Worker] = []


class Fibres:
    """Passes the baton: at any moment the loop runs, or one fibre."""

    def __init__(
        self, loop: VirtualLoop, on_end: Callable[[SimulatedThread, BaseException | None], None]
    ):
        self._loop = loop
        self._on_end = on_end
        self._back = allocate_lock()
        self._back.acquire()
        self.running: SimulatedThread | None = None

    def start(self, fibre: SimulatedThread) -> None:
        """Have a fibre begin soon."""
        fibre.process.fibres.append(fibre)
        self._loop.call_soon(self._begin, fibre)

    def _begin(self, fibre: SimulatedThread) -> None:
        if fibre.killed or fibre.done:
            return
        worker = _idle.pop() if _idle else None
        if worker is None:
            worker = _Worker()
            worker.start()
        fibre.worker = worker
        worker.job = lambda: self._run(fibre, worker)
        self._resume(fibre)

    def _run(self, fibre: SimulatedThread, worker: _Worker) -> None:
        error: BaseException | None = None
        try:
            fibre.target()
        except BaseException as raised:  # also SystemExit: the way a process says its status
            error = raised.with_traceback(None) if isinstance(raised, KilledError) else raised
        fibre.done = True
        fibre.worker = None
        if not fibre.killed:
            self._on_end(fibre, error)
        _idle.append(worker)
        self._back.release()

    def _resume(self, fibre: SimulatedThread) -> None:
        assert fibre.worker is not None
        self.running = fibre
        fibre.worker.go.release()
        self._back.acquire()
        self.running = None

    def pause(self) -> None:
        """Let others run until somebody wakes this fibre."""
        fibre = self.running
        assert fibre is not None
        assert fibre.worker is not None
        if fibre.killed:
            raise KilledError
        self._back.release()
        fibre.worker.go.acquire()
        fibre.ticket += 1
        if fibre.killed:
            raise KilledError

    def wake(self, fibre: SimulatedThread, ticket: int) -> None:
        """Let a fibre go on, if it still waits where it did when it gave the ticket."""
        if fibre.ticket == ticket and fibre.worker is not None and not fibre.killed:
            self._resume(fibre)

    def kill(self, fibre: SimulatedThread) -> None:
        """Unwind a fibre; called by the loop, never by a fibre."""
        fibre.killed = True
        if fibre.worker is not None:
            self._resume(fibre)

    def sleep(self, for_s: float) -> None:
        """Let virtual time pass for the running fibre."""
        fibre = self.running
        assert fibre is not None
        for_s = max(for_s, 0.0)
        if not fibre.killed and self._loop.skip(for_s):
            fibre.ticket += 1
            return
        self._loop.call_later(for_s, self.wake, fibre, fibre.ticket)
        self.pause()

    def event(self) -> "Event":
        """Return a new event to wait for."""
        return Event(self, self._loop)


class Event:
    """What ``threading.Event`` is, for fibres."""

    def __init__(self, fibres: Fibres, loop: VirtualLoop) -> None:
        self._fibres = fibres
        self._loop = loop
        self._is_set = False
        self._waiting: list[tuple[SimulatedThread, int]] = []

    def is_set(self) -> bool:
        """Tell whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait."""
        self._is_set = True
        for fibre, ticket in self._waiting:
            self._loop.call_soon(self._fibres.wake, fibre, ticket)
        self._waiting.clear()

    def clear(self) -> None:
        """Let those who come wait again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so long."""
        if not self._is_set:
            fibre = self._fibres.running
            assert fibre is not None
            self._waiting.append((fibre, fibre.ticket))
            if timeout is None:
                self._fibres.pause()
            else:
                self._fibres.sleep(timeout)
        return self._is_set
