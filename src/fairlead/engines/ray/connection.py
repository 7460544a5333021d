"""The scheduler's connection to Ray, through a process that is started again when it dies."""

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

_AGAIN_S = 1.0
"""between two tries to reach Ray"""
_CONNECT_TIMEOUT_S = 60.0
"""by then a process that tries has connected or never will"""
_OPEN: dict[tuple[str, str], "Connection"] = {}


class RayError(FairleadError):
    """Ray cannot be reached or has refused; the message is Ray's."""

    code = "ray"


def connection(address: str, here: str, log: str) -> "Connection":
    """Return this process's connection to a cluster; as with Ray itself, there is one for all."""
    found = _OPEN.get((address, here))
    if found is None:
        found = _OPEN[address, here] = Connection(address, here, log)
    return found


class Connection:
    """Requests to Ray; those that wait when the connection breaks fail, later ones may not."""

    def __init__(self, address: str, here: str, log: str) -> None:
        self.address = address
        self.since: float | None = None
        """when it was made, by our own clock; None while there is none"""
        self._command = [sys.executable, "-m", "fairlead.engines.ray.bridge", address, here]
        self._log = log
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._tried = threading.Event()
        """set once a try to connect has succeeded or failed; not between a break and the next"""
        threading.Thread(target=self._keep, name="fairlead-ray", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """End the process that speaks to Ray."""
        self._closed = True
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def wait(self) -> bool:
        """Wait for a try to connect that is under way; tell whether there is a connection now."""
        self._tried.wait(_CONNECT_TIMEOUT_S)
        return self.since is not None

    async def ask(self, method: str, *arguments: object) -> Any:
        """Return what the process answers; see ``ray_bridge.RayBridge``."""
        return await asyncio.wrap_future(self.submit(method, *arguments))

    def submit(self, method: str, *arguments: object) -> "Future[Any]":
        """Send a request; return its answer as it will come."""
        future: Future[Any] = Future()
        with self._lock:
            if self.since is None or self._process is None or self._process.stdin is None:
                raise RayError(f"Ray at {self.address} cannot be reached; see {self._log}")
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                send(self._process.stdin.fileno(), (number, method, arguments))
            except OSError as error:
                del self._waiting[number]
                raise RayError(f"the connection to Ray broke: {error}") from None
        return future

    # -- what Ray is asked for ------------------------------------------------------------------

    async def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes that Ray knows, dead ones too."""
        found: list[dict[str, Any]] = await self.ask("nodes")
        return found

    async def groups(self, prefix: str) -> list[dict[str, Any]]:
        """Return the placement groups whose names begin with this."""
        found: list[dict[str, Any]] = await self.ask("groups", prefix)
        return found

    async def reserve(
        self, name: str, bundles: Sequence[Mapping[str, float]], within_s: float
    ) -> bool:
        """Hold resources under a name; tell whether Ray has given them in time."""
        return bool(await self.ask("reserve", name, bundles, within_s))

    async def call(self, node: str, method: str, *arguments: object, within_s: float) -> Any:
        """Return what the supervising actor of a node answers, RayError if not in time."""
        try:
            async with asyncio.timeout(within_s):
                return await self.ask("call", node, method, *arguments)
        except TimeoutError:
            raise RayError(f"node {node} did not answer in {within_s:g} s") from None

    # -- the process ----------------------------------------------------------------------------

    def _keep(self) -> None:
        """Keep a process that is connected, for as long as we live."""
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
                late = threading.Timer(_CONNECT_TIMEOUT_S, process.kill)
                late.start()
                while (said := receive(process.stdout.fileno())) is not None:
                    late.cancel()
                    self._take(*said)
                late.cancel()
                with self._lock:
                    if self.since is None:
                        self._tried.set()
                    else:
                        self._tried.clear()
                    self._process, self.since = None, None
                    broken, self._waiting = self._waiting, {}
                for future in broken.values():
                    if not future.cancelled():
                        future.set_exception(RayError("the connection to Ray broke"))
                with suppress(OSError):
                    process.stdin.close()
                process.kill()
            if not self._closed:
                time.sleep(_AGAIN_S)

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start the process; None: our directory is gone, and whoever wanted us with it."""
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

    def _take(self, number: int, error: str | None, value: object) -> None:
        if number == 0:  # it is connected
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
