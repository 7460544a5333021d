"""Where slow calls are made: the loop goes on while threads write to disk and compute plans."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


class Workers(Protocol):
    """Makes blocking calls without holding up the loop."""

    async def write(self, call: Callable[..., Any], *given: object) -> Any:
        """Make a call to the store, one after the other."""
        ...

    async def plan(self, call: Callable[..., Any], *given: object) -> Any:
        """Compute a plan, one at a time."""
        ...

    def close(self) -> None:
        """Wait for what is under way."""
        ...


class WorkerThreads:
    """One thread for the store, one for plans."""

    def __init__(self) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fairlead-store")
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="fairlead-plan")

    async def write(self, call: Callable[..., Any], *given: object) -> Any:
        """Make a call to the store, one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *given)

    async def plan(self, call: Callable[..., Any], *given: object) -> Any:
        """Compute a plan, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._planner, call, *given)

    def close(self) -> None:
        """Wait for what is under way."""
        self._planner.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
