"""What the live driver takes in, one after the other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
