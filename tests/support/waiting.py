"""Waiting for an event: tests name the event, and never sleep for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str = "", limit_s: float = 90.0) -> T:
    """Return the first true result of a condition; the limit allows for slow machines."""
    end = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < end, what or "the condition does not become true"
        time.sleep(0.05)
    return result


async def eventually(
    condition: Callable[[], T | None], what: str = "", limit_s: float = 90.0
) -> T:
    """Return the first true result of a condition, while the event loop runs."""
    end = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < end, what or "the condition does not become true"
        await asyncio.sleep(0.005)
    return result
