"""Harness of the engine suite: launches probe jobs and waits for reports."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.base import Ended, Engine, LaunchOrder, NodeDown, NodeUp, Report, Started
from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines import probe


@dataclass(frozen=True, kw_only=True)
class EngineFixture:
    """An engine's constructor with the properties of its cluster.

    ``make`` is called inside an event loop and returns a new engine on the same data directory,
    which holds all its state. ``lose`` makes a node fail with all its processes, ``return_node``
    repairs it; both are None for engines whose nodes cannot fail separately.
    """

    make: Callable[[], Engine]
    root: Path
    """directory shared by all nodes"""
    cluster: Cluster
    """expected inventory"""
    orphans: Callable[[], Collection[str]] = tuple
    """returns the names of objects that the engine has left in the cluster manager"""
    lose: Callable[[str], Awaitable[None]] | None = None
    return_node: Callable[[str], Awaitable[None]] | None = None
    python: str = sys.executable
    patience_s: float = 30.0
    """seconds to wait for any expected event"""


@dataclass
class EngineHarness:
    """One engine with its reports and those of its probe jobs."""

    fixture: EngineFixture
    engine: Engine
    seen: list[Report] = field(default_factory=list)
    orders: dict[int, LaunchOrder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reports_dir = self.fixture.root / "reports"
        self.reports_dir.mkdir(parents=True, exist_ok=True)
        self.reports_dir.chmod(0o777)
        self._new = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            self.seen.append(report)
            self._new.set()

    async def close(self) -> None:
        """Close the engine; its leases continue."""
        self._listener.cancel()
        with suppress(asyncio.CancelledError):
            await self._listener
        await self.engine.close()

    async def restarted(self) -> "EngineHarness":
        """Return a harness with a new engine, as after a restart of the scheduler."""
        await self.close()
        return EngineHarness(self.fixture, self.fixture.make(), orders=self.orders)

    # -- orders ---------------------------------------------------------------------------------

    def order(
        self, lease: int, devices: Collection[tuple[str, int]], *arguments: object, **settings: Any
    ) -> LaunchOrder:
        """Return a launch order for the probe on these devices."""
        home = self.fixture.root / "jobs" / str(settings.pop("job", f"j{lease}"))
        accelerator_of = {
            (node.id, number): accelerator
            for node in self.fixture.cluster.nodes
            for number, accelerator in enumerate(node.devices)
        }
        command = (
            self.fixture.python,
            probe.__file__,
            self.reports_dir,
            *(arguments or ("wait",)),
        )
        settings = {"grace_s": 10.0, "total_steps": 10, **settings}
        order = LaunchOrder(
            lease=lease,
            job=home.name,
            command=tuple(map(str, command)),
            directory=str(self.reports_dir),
            environment={"PROBE_ASKED": f"for lease {lease}"},
            devices=tuple(devices),
            accelerators=tuple(accelerator_of[device] for device in devices),
            checkpoint_dir=str(home / "checkpoint"),
            log_dir=str(home / "logs"),
            **settings,
        )
        self.orders[lease] = order
        return order

    async def start(
        self, lease: int, devices: Collection[tuple[str, int]], *arguments: object, **settings: Any
    ) -> LaunchOrder:
        """Launch the probe and wait until all its members have reported."""
        order = self.order(lease, devices, *arguments, **settings)
        await self.engine.launch(order)
        await self.wait_for_members(lease)
        return order

    async def wait_for_members(self, lease: int) -> None:
        """Wait until all members of a lease have reported."""
        count = len(self.orders[lease].devices)
        await self.until(lambda: len(self.members(lease)) == count, f"lease {lease} to run")

    # -- reports --------------------------------------------------------------------------------

    def members(self, lease: int) -> dict[int, dict[str, Any]]:
        """Return rank → report of that member of the lease."""
        reports = {}
        for rank in range(len(self.orders[lease].devices)):
            with suppress(FileNotFoundError):
                text = (self.reports_dir / f"{lease}.{rank}.json").read_text(encoding="utf-8")
                reports[rank] = json.loads(text)
        return reports

    def members_left(self, lease: int) -> int:
        """Return the number of the lease's members that left on request."""
        return len(list(self.reports_dir.glob(f"{lease}.*.left.json")))

    def alive(self, lease: int) -> int:
        """Return the number of the lease's live members on this machine."""
        return sum(_is_alive(report["pid"]) for report in self.members(lease).values())

    def ends(self, lease: int) -> list[Ended]:
        """Return the reports of the lease's end."""
        return [
            report for report in self.seen if isinstance(report, Ended) and report.lease == lease
        ]

    def starts(self, lease: int) -> int:
        """Return the number of reports of the lease's start."""
        return self.seen.count(Started(lease))

    async def ended(self, lease: int) -> Ended:
        """Wait for the report of the lease's end."""
        await self.until(lambda: bool(self.ends(lease)), f"the end of lease {lease}")
        return self.ends(lease)[-1]

    async def node(self, report: NodeDown | NodeUp, patience_s: float | None = None) -> None:
        """Wait for a report on a node."""
        await self.until(lambda: report in self.seen, f"{report}", patience_s)

    async def until(
        self, holds: Callable[[], bool], what: str, patience_s: float | None = None
    ) -> None:
        """Wait until a condition holds; fail after a timeout."""
        patience_s = patience_s or self.fixture.patience_s
        end = time.monotonic() + patience_s
        while not holds():
            require(time.monotonic() < end, f"timed out after {patience_s:g} s waiting for {what}")
            self._new.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._new.wait(), 0.02)


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def open_files() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))
