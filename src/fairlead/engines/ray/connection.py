"""The scheduler's connection to Ray, through a bridge process that is restarted when it dies."""

import asyncio
import atexit
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from fairlead.engines.ray.pipe import receive, send
from fairlead.model.errors import FairleadError

_RETRY_S = 1.0
"""seconds between two attempts to connect"""
_CONNECT_TIMEOUT_S = 60.0
"""seconds after which a bridge that has not connected is killed"""
_OPEN: dict[tuple[str, str], "RayConnection"] = {}


class RayError(FairleadError):
    """Ray is unreachable or has rejected a request; the message is Ray's."""

    code = "ray"


def connection(address: str, here: str, log: str) -> "RayConnection":
    """Return this process's only connection to a cluster; open it on the first call."""
    ray = _OPEN.get((address, here))
    if ray is None:
        ray = _OPEN[address, here] = RayConnection(address, here, log)
    return ray


class RayConnection:
    """Sends requests to Ray; pending requests fail when the connection breaks."""

    def __init__(self, address: str, here: str, log: str) -> None:
        self.address = address
        self.since: float | None = None
        """monotonic time at which the connection was made; None while there is none"""
        self._command = [sys.executable, "-m", "fairlead.engines.ray.bridge", address, here]
        self._log = log
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._tried = threading.Event()
        """set once an attempt to connect has succeeded or failed; cleared when it breaks"""
        threading.Thread(target=self._keep_connected, name="fairlead-ray", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the bridge."""
        self._closed = True
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def wait(self) -> bool:
        """Wait for a running attempt to connect; return whether there is a connection now."""
        self._tried.wait(_CONNECT_TIMEOUT_S)
        return self.since is not None

    async def ask(self, method: str, *arguments: object) -> Any:
        """Return the bridge's answer to a request; see ``bridge.RayBridge``."""
        return await asyncio.wrap_future(self.submit(method, *arguments))

    def submit(self, method: str, *arguments: object) -> "Future[Any]":
        """Send a request; return a future with its answer."""
        future: Future[Any] = Future()
        with self._lock:
            if self.since is None or self._process is None or self._process.stdin is None:
                raise RayError(f"Ray at {self.address} is unreachable; see {self._log}")
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                send(self._process.stdin.fileno(), (number, method, arguments))
            except OSError as error:
                del self._waiting[number]
                raise RayError(f"connection to Ray lost: {error}") from None
        return future

    # -- requests -------------------------------------------------------------------------------

    async def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes that Ray lists, dead ones too."""
        nodes: list[dict[str, Any]] = await self.ask("nodes")
        return nodes

    async def groups(self, prefix: str) -> list[dict[str, Any]]:
        """Return the placement groups whose names start with a prefix."""
        groups: list[dict[str, Any]] = await self.ask("groups", prefix)
        return groups

    async def reserve(
        self, name: str, bundles: Sequence[Mapping[str, float]], within_s: float
    ) -> bool:
        """Create a placement group; return whether Ray allocated its resources in time."""
        return bool(await self.ask("reserve", name, bundles, within_s))

    async def call(self, node: str, method: str, *arguments: object, within_s: float) -> Any:
        """Return the answer of a node's agent; raise RayError on a timeout."""
        try:
            async with asyncio.timeout(within_s):
                return await self.ask("call", node, method, *arguments)
        except TimeoutError:
            raise RayError(f"no answer from node {node} within {within_s:g} s") from None

    # -- the bridge process ---------------------------------------------------------------------

    def _keep_connected(self) -> None:
        """Restart the bridge whenever it dies, until the connection is closed."""
        while not self._closed:
            process = self._start()
            if process is None:
                return
            assert process.stdin is not None
            assert process.stdout is not None
            with process:
                with self._lock:
                    self._process = process
                    if self._closed:
                        return
                timeout = threading.Timer(_CONNECT_TIMEOUT_S, process.kill)
                timeout.start()
                while (answer := receive(process.stdout.fileno())) is not None:
                    timeout.cancel()
                    self._resolve(*answer)
                timeout.cancel()
                with self._lock:
                    if self.since is None:
                        self._tried.set()
                    else:
                        self._tried.clear()
                    self._process, self.since = None, None
                    broken, self._waiting = self._waiting, {}
                for future in broken.values():
                    if not future.cancelled():
                        future.set_exception(RayError("connection to Ray lost"))
                with suppress(OSError):
                    process.stdin.close()
                process.kill()
            if not self._closed:
                time.sleep(_RETRY_S)

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start the bridge; return None if the server's directory was removed."""
        try:
            with open(self._log, "ab") as log:
                return subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, "RAY_DEDUP_LOGS": "0"},
                )
        except FileNotFoundError:
            return None

    def _resolve(self, number: int, error: str | None, value: object) -> None:
        if number == 0:  # connected
            with self._lock:
                self.since = time.monotonic()
            self._tried.set()
            return
        with self._lock:
            future = self._waiting.pop(number, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(RayError(error))
