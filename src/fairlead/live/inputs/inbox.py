"""Inbox of the live driver: inputs wait here and are processed one after the other."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fairlead.live.clock import Clock
from fairlead.model import events as ev
from fairlead.model.commands import Command
from fairlead.model.errors import FairleadError
from fairlead.store import Change

_MAX_BATCH = 500
_MAX_BATCH_S = 0.02
"""time spent on one batch before it is persisted and requests are served"""

EventFactory = Callable[[float], Iterable[ev.Event | None]]
"""instant → the events of an input; None where requests may be served"""
Changes = Sequence[Change] | Callable[[], Iterable[Change | None]]
"""document changes persisted with the events, or a function called once these are handled"""


@dataclass(slots=True)
class InboxItem:
    """One input: its events, its document changes and the caller's future, if a caller waits."""

    make: EventFactory
    changes: Changes = ()
    answer: "asyncio.Future[None] | None" = None

    def document_changes(self) -> Iterable[Change | None]:
        """Return the document changes; the events must have been handled."""
        return self.changes() if callable(self.changes) else self.changes

    def succeed(self) -> None:
        """Tell the caller that the input is persisted."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(None)

    def fail(self, error: FairleadError) -> bool:
        """Pass an error to the caller; return False if no caller waits."""
        if self.answer is None:
            return False
        if not self.answer.cancelled():
            self.answer.set_exception(error)
        return True


@dataclass(slots=True)
class HandledBatch:
    """Inputs that the core has handled: records to persist, and commands to perform then."""

    items: list[InboxItem] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    """encoded events"""
    changes: list[Change] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """leases that have ended"""
    notices: set[str] = field(default_factory=set)
    """notices to publish once the events are persisted"""


class Inbox:
    """Queue of inputs from users, operators, the engine and timers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: asyncio.Queue[InboxItem] = asyncio.Queue()

    async def submit(self, make: EventFactory, changes: Changes = ()) -> None:
        """Add an input; return once it is persisted, or raise the error that rejects it."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(InboxItem(make, changes, answer))
        await answer

    def post(self, make: EventFactory, changes: Changes = ()) -> None:
        """Add an input without waiting for it."""
        self._queue.put_nowait(InboxItem(make, changes))

    def fail_waiting(self, error: FairleadError) -> None:
        """Pass an error to all callers that wait."""
        while not self._queue.empty():
            self._queue.get_nowait().fail(error)

    def empty(self) -> bool:
        """Return whether no input waits."""
        return self._queue.empty()

    async def get(self) -> InboxItem:
        """Return the next input once there is one."""
        return await self._queue.get()

    def batch(self, first: InboxItem) -> Iterator[InboxItem]:
        """Yield an input and those that wait behind it, up to the size and time of one batch."""
        yield first
        until = self._clock.now() + _MAX_BATCH_S
        for _ in range(_MAX_BATCH - 1):
            if self._queue.empty() or self._clock.now() > until:
                return
            yield self._queue.get_nowait()
