"""What the live driver takes in, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.model import events as ev
from fairlead.store import Change

Make = Callable[[float], Sequence[ev.Event]]
"""what makes events of a happening, once its time is known"""
Changes = Sequence[Change] | Callable[[], Sequence[Change]]
"""documents to change along with the events, or what returns them once these are handled"""


@dataclass(slots=True)
class Input:
    """Something that happened: the events it makes of it, and what else it changes."""

    make: Make
    changes: Changes = ()
    answer: "asyncio.Future[None] | None" = None


class Queue(Protocol):
    """Where happenings are taken in, one after the other."""

    def do(self, make: Make, changes: Changes = ()) -> Awaitable[None]:
        """Take in a happening; what is returned is done when it is on disk."""
        ...

    def put(self, make: Make, changes: Changes = ()) -> None:
        """Take in a happening that nobody waits for."""
        ...
