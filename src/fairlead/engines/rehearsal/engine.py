"""The rehearsal engine: simulated members, to test the scheduler at full scale.

Everything but the work is real. Leases are launched and stopped through the engine's protocol, and
each member of a gang renews its lease over HTTP as the job library would. The members live in
their own process (``members``), which outlives the scheduler as jobs do.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.base import Ended, LaunchOrder, Report, Started
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError

_START_TIMEOUT_S = 20.0
_CONNECT_POLL_S = 0.05
_MAX_LINE_BYTES = 1 << 26


class RehearsalError(FairleadError):
    """The members' process cannot be reached."""

    code = "rehearsal"


class RehearsalEngine:
    """Runs leases on simulated devices; commands are not executed."""

    def __init__(self, data: Path, cluster: Cluster, *, start_s: float = 0.5) -> None:
        """Rehearse this cluster; members take ``start_s`` to start, as an interpreter does."""
        self._root = data / "rehearsal"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._cluster = cluster
        self._start_s = start_s
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._open: set[int] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def inventory(self) -> Cluster:
        """Return the rehearsed cluster."""
        return self._cluster

    async def launch(self, order: LaunchOrder) -> None:
        """Start the members of a lease, once."""
        if order.lease in self._open:
            return
        environment = order.environment
        self._open.add(order.lease)
        await self._send(
            launch=order.lease,
            job=order.job,
            ranks=len(order.devices),
            url=environment["FAIRLEAD_URL"],
            token=environment["FAIRLEAD_JOB_TOKEN"],
            steps_per_s=float(environment["FAIRLEAD_EMULATED_STEPS_PER_S"]),
            total_steps=order.total_steps,
        )

    async def stop(self, lease: int) -> None:
        """Ask the members of a lease to leave."""
        await self._send(stop=lease)

    async def running(self) -> frozenset[int]:
        """Return the leases that have not ended."""
        return frozenset(self._open)

    async def adopt(self, leases: Collection[int]) -> None:
        """Keep these leases, stop all others, report ended leases."""
        self._open.update(leases)
        await self._send(adopt=sorted(leases))

    async def forget(self, leases: Collection[int]) -> None:
        """Drop the ends of leases that the members' process keeps."""
        await self._send(forget=sorted(leases))

    def reports(self) -> AsyncIterator[Report]:
        """Yield reports about leases."""
        return self._iterate_reports()

    async def close(self) -> None:
        """Disconnect; the members keep running."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
        if self._writer is not None:
            self._writer.close()

    async def _iterate_reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    async def _send(self, **message: object) -> None:
        writer = await self._connected()
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await writer.drain()

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None or self._writer.is_closing():
                reader, self._writer = await self._connect()
                self._listener = asyncio.create_task(self._listen(reader))
            return self._writer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        path = self._root / "socket"
        process: subprocess.Popen[bytes] | None = None
        loop = asyncio.get_running_loop()
        until = loop.time() + _START_TIMEOUT_S
        while loop.time() < until:
            with suppress(OSError):
                return await asyncio.open_unix_connection(str(path), limit=_MAX_LINE_BYTES)
            if process is None:
                process = self._start_members_process()
            await asyncio.sleep(_CONNECT_POLL_S)
        raise RehearsalError(f"members' process: no answer: see {self._root}/nodes.log")

    def _start_members_process(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fairlead.engines.rehearsal.members", str(self._root)]
        with (self._root / "nodes.log").open("ab") as log:
            return subprocess.Popen(
                [*command, str(self._start_s)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Forward the reports of the members' process; all leases are lost when it dies."""
        while line := await reader.readline():
            self._handle_report(json.loads(line))
        for lease in sorted(self._open):
            self._handle_report({"ended": lease, "ending": "lost", "steps": None})

    def _handle_report(self, report: dict[str, Any]) -> None:
        if "started" in report:
            self._reports.put_nowait(Started(report["started"]))
            return
        self._open.discard(report["ended"])
        self._reports.put_nowait(Ended(report["ended"], report["ending"], report["steps"]))
