"""Threads for blocking calls: the event loop runs while they write to disk and compute plans."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


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
    """One thread for the store, one for plans."""

    def __init__(self) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fairlead-store")
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="fairlead-plan")

    async def write(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Call the store; calls run one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *arguments)

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Compute a plan; plans are computed one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._planner, call, *arguments)

    def close(self) -> None:
        """Wait for running calls."""
        self._planner.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
