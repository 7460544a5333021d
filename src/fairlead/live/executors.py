"""Threads for blocking calls, which keep the event loop free, and the tasks of the driver."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Protocol

import structlog

from fairlead.store import StoreUnavailableError

log = structlog.get_logger("fairlead.live")

_PLAN_LIMIT_S = 300.0
"""seconds after which a plan is given up"""
_MAX_STUCK = 3
"""plans given up that may still be running"""
_CLOSE_S = 10.0
"""seconds that the end of the process waits for a running plan"""


class PlanTimeoutError(Exception):
    """A plan takes too long; ``places`` names the functions it is in, innermost first."""

    def __init__(self, problem: str, places: Sequence[frozenset[str]] = ()) -> None:
        super().__init__(problem)
        self.places = places


class Workers(Protocol):
    """Makes blocking calls without blocking the event loop."""

    async def write(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Call the store; calls run one after the other."""
        ...

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Compute a plan; plans are computed one after the other."""
        ...

    def close(self) -> None:
        """Wait for running calls."""
        ...


class WorkerThreads:
    """One thread for the store, one for each plan: a plan that never ends can be given up."""

    def __init__(self, plan_limit_s: float | None = None) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fairlead-store")
        self._plan_limit_s = _PLAN_LIMIT_S if plan_limit_s is None else plan_limit_s
        self._one_plan = asyncio.Lock()
        self._planning: list[threading.Thread] = []
        """threads of plans that may still be running"""

    async def write(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Call the store; calls run one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *arguments)

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Compute a plan; raise PlanTimeoutError if it takes too long.

        Plans are computed one after the other, except beside those that were given up.
        """
        async with self._one_plan:
            self._planning = [thread for thread in self._planning if thread.is_alive()]
            if len(self._planning) >= _MAX_STUCK:
                stuck = self._planning[0]
                raise PlanTimeoutError("earlier plans still run", _places_in(stuck))
            return await self._in_thread(call, arguments)

    async def _in_thread(self, call: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def run() -> None:
            result: Any = None
            error: Exception | None = None
            try:
                result = call(*arguments)
            except BaseException as raised:
                error = _as_exception(raised)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, result, error)

        # A daemon: a plan that never ends must not keep the process from ending.
        thread = threading.Thread(target=run, name="fairlead-plan", daemon=True)
        thread.start()
        self._planning.append(thread)
        try:
            async with asyncio.timeout(self._plan_limit_s):
                return await answer
        except TimeoutError:
            if answer.done() and not answer.cancelled():
                raise  # the plan's own error
            problem = f"the plan takes longer than {self._plan_limit_s:g} s"
            raise PlanTimeoutError(problem, _places_in(thread)) from None
        finally:
            if answer.done() and not answer.cancelled():
                self._planning.remove(thread)  # not stuck, though it may take a while to end

    def close(self) -> None:
        """Wait for running calls, but not for plans without end."""
        until = time.monotonic() + _CLOSE_S
        for thread in self._planning:
            thread.join(max(until - time.monotonic(), 0.0))
        self._writer.shutdown(wait=True)


class BackgroundTasks:
    """Tasks of the driver; the first one that fails breaks it."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        """set when a task has failed: the process must end and start again"""
        self.failure: BaseException | None = None
        """error of the first task that failed"""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """as a set, but in the order in which they were spawned"""

    def spawn(self, work: Awaitable[None]) -> None:
        """Run work beside everything else."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._finished)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or task.exception() is None:
            return
        self.failure = self.failure or task.exception()
        if isinstance(self.failure, StoreUnavailableError):
            log.error("store.unavailable", error=str(self.failure))
        else:
            log.error("task.failed", exc_info=task.exception())
        self.broken.set()


def _as_exception(raised: BaseException) -> Exception:
    """Return an error that ends neither the event loop nor a generator."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(f"{raised!r} was raised").with_traceback(raised.__traceback__)


def place_of(frame: FrameType) -> frozenset[str]:
    """Return the names of a running function: its top package, and the classes of its object.

    Classes are named as in entry points: ``module:Class``.
    """
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    owner = frame.f_locals.get("self")
    classes = () if owner is None else type(owner).__mro__
    return frozenset({package, *(f"{each.__module__}:{each.__qualname__}" for each in classes)})


def _places_in(thread: threading.Thread) -> list[frozenset[str]]:
    """Return the places that a thread is in, innermost first."""
    frame = sys._current_frames().get(thread.ident or 0)
    places = []
    while frame is not None:
        places.append(place_of(frame))
        frame = frame.f_back
    return places
