"""Long work in pieces: the event loop serves other requests between them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

PIECE = 20
"""jobs of a request that are handled at once: a few milliseconds"""


async def in_pieces(items: Iterable[T | None]) -> AsyncIterator[T]:
    """Yield the items; None marks where the event loop may run, which it does at every 20th."""
    marks = 0
    for item in items:
        if item is not None:
            yield item
            continue
        marks += 1
        if marks % PIECE == 0:
            await asyncio.sleep(0)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in pieces."""
    return (items[first : first + PIECE] for first in range(0, len(items), PIECE))
