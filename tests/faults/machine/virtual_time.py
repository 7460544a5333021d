"""Virtual time: an event loop that never waits, with threads that run one at a time."""

import asyncio
import heapq
import selectors
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_MAX_TURNS = 100_000
"""turns of the loop in one run; a few hundred are usual"""


class StalledError(AssertionError):
    """The simulation can make no more progress."""


class _VirtualSelector(selectors.BaseSelector):
    """Selects nothing; a wait advances the virtual time."""

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
        """Advance the time and count the turn."""
        self.turns += 1
        if self.turns > _MAX_TURNS:
            raise StalledError("the loop does not become idle")
        self.now += for_s

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop on virtual time; readers wait for simulated processes to end."""

    # Private attributes of asyncio's loop.
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

    def reset_turns(self) -> None:
        """Reset the count of turns."""
        self._ahead.turns = 0

    def stall(self, for_s: float) -> None:
        """Advance the time without running anything."""
        self._ahead.now += for_s

    def skip(self, for_s: float) -> bool:
        """Advance the time if nothing is scheduled meanwhile; return whether it advanced."""
        until = self._ahead.now + for_s
        scheduled = self._scheduled
        if self._ready or self._stopping or (scheduled and scheduled[0]._when <= until):
            return False
        self._ahead.wait(until - self._ahead.now)
        return True

    def _run_once(self) -> None:
        """Make one turn as asyncio's loop does, without polling descriptors."""
        scheduled, ready, ahead = self._scheduled, self._ready, self._ahead
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:
            if not scheduled:
                raise StalledError("no event is scheduled")
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
        """Call back when the simulated descriptor becomes readable."""
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        """Remove the callback of a descriptor."""
        return self.readers.pop(fd, None) is not None


class KilledError(BaseException):
    """Unwinds a thread whose process was killed."""


class SimulatedThread:
    """Thread of a simulated process; it runs only while the loop waits for it."""

    def __init__(self, process: Any, target: Callable[[], object]) -> None:
        self.process = process
        self.target = target
        self.ticket = 0
        """number of its pauses; a wake-up applies to one pause only"""
        self.worker: _Worker | None = None
        self.killed = False
        self.done = False


class _Worker(threading.Thread):
    """Operating-system thread that runs one simulated thread after another."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="fairlead-fault-thread")
        self.go = allocate_lock()
        self.go.acquire()
        self.job: Callable[[], None] | None = None

    def run(self) -> None:
        while True:
            self.go.acquire()
            assert self.job is not None
            self.job()


_idle: list[_Worker] = []


class SimulatedThreads:
    """Schedules simulated threads: either the loop runs or exactly one thread."""

    def __init__(
        self, loop: VirtualLoop, on_end: Callable[[SimulatedThread, BaseException | None], None]
    ):
        self._loop = loop
        self._on_end = on_end
        self._back = allocate_lock()
        self._back.acquire()
        self.running: SimulatedThread | None = None

    def start(self, thread: SimulatedThread) -> None:
        """Schedule the start of a thread."""
        thread.process.threads.append(thread)
        self._loop.call_soon(self._begin, thread)

    def _begin(self, thread: SimulatedThread) -> None:
        if thread.killed or thread.done:
            return
        worker = _idle.pop() if _idle else None
        if worker is None:
            worker = _Worker()
            worker.start()
        thread.worker = worker
        worker.job = lambda: self._run(thread, worker)
        self._resume(thread)

    def _run(self, thread: SimulatedThread, worker: _Worker) -> None:
        error: BaseException | None = None
        try:
            thread.target()
        except BaseException as raised:  # also SystemExit, which carries the exit status
            error = raised.with_traceback(None) if isinstance(raised, KilledError) else raised
        thread.done = True
        thread.worker = None
        if not thread.killed:
            self._on_end(thread, error)
        _idle.append(worker)
        self._back.release()

    def _resume(self, thread: SimulatedThread) -> None:
        assert thread.worker is not None
        self.running = thread
        thread.worker.go.release()
        self._back.acquire()
        self.running = None

    def pause(self) -> None:
        """Suspend the running thread until it is woken."""
        thread = self.running
        assert thread is not None
        assert thread.worker is not None
        if thread.killed:
            raise KilledError
        self._back.release()
        thread.worker.go.acquire()
        thread.ticket += 1
        if thread.killed:
            raise KilledError

    def wake(self, thread: SimulatedThread, ticket: int) -> None:
        """Resume a thread if it is still in the pause of this ticket."""
        if thread.ticket == ticket and thread.worker is not None and not thread.killed:
            self._resume(thread)

    def kill(self, thread: SimulatedThread) -> None:
        """Unwind a thread; only the loop may call this."""
        thread.killed = True
        if thread.worker is not None:
            self._resume(thread)

    def sleep(self, for_s: float) -> None:
        """Suspend the running thread for some virtual time."""
        thread = self.running
        assert thread is not None
        for_s = max(for_s, 0.0)
        if not thread.killed and self._loop.skip(for_s):
            thread.ticket += 1
            return
        self._loop.call_later(for_s, self.wake, thread, thread.ticket)
        self.pause()

    def event(self) -> "Event":
        """Return a new event."""
        return Event(self, self._loop)


class Event:
    """Replacement of ``threading.Event`` for simulated threads."""

    def __init__(self, threads: SimulatedThreads, loop: VirtualLoop) -> None:
        self._threads = threads
        self._loop = loop
        self._is_set = False
        self._waiting: list[tuple[SimulatedThread, int]] = []

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event and wake all waiting threads."""
        self._is_set = True
        for thread, ticket in self._waiting:
            self._loop.call_soon(self._threads.wake, thread, ticket)
        self._waiting.clear()

    def clear(self) -> None:
        """Clear the event."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set or the timeout expires."""
        if not self._is_set:
            thread = self._threads.running
            assert thread is not None
            self._waiting.append((thread, thread.ticket))
            if timeout is None:
                self._threads.pause()
            else:
                self._threads.sleep(timeout)
        return self._is_set
