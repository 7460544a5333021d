"""What the engine suite works with: an engine on its cluster, probes to run, reports to await."""

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

from fairlead.engines.base import Ended, Engine, NodeDown, NodeUp, Order, Report, Started
from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines import probe as engines_probe


@dataclass(frozen=True, kw_only=True)
class Rig:
    """How to get an engine and what its cluster is like.

    ``make`` is called inside an event loop and returns a new engine object for the same data
    directory: what it does not find there it does not know. ``lose`` lets a node fail with all
    that runs there, ``give_back`` repairs it; both are None where nodes cannot fail by themselves.
    """

    make: Callable[[], Engine]
    root: Path
    """a directory that all nodes see"""
    cluster: Cluster
    """what inventory must say"""
    leftovers: Callable[[], Collection[str]] = tuple
    """names of what the engine has left in the cluster manager, besides processes"""
    lose: Callable[[str], Awaitable[None]] | None = None
    give_back: Callable[[str], Awaitable[None]] | None = None
    python: str = sys.executable
    patience_s: float = 30.0
    """within which anything that is to happen happens"""


@dataclass
class Bench:
    """One engine at work: its reports as they come, and what its jobs told."""

    rig: Rig
    engine: Engine
    seen: list[Report] = field(default_factory=list)
    orders: dict[int, Order] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.told = self.rig.root / "told"
        self.told.mkdir(parents=True, exist_ok=True)
        self.told.chmod(0o777)
        self._new = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            self.seen.append(report)
            self._new.set()

    async def close(self) -> None:
        """Let go of the engine; what runs goes on."""
        self._listener.cancel()
        with suppress(asyncio.CancelledError):
            await self._listener
        await self.engine.close()

    async def again(self) -> "Bench":
        """Return a bench with a new engine object, as after a restart of the scheduler."""
        await self.close()
        return Bench(self.rig, self.rig.make(), orders=self.orders)

    # -- orders ---------------------------------------------------------------------------------

    def order(
        self, lease: int, devices: Collection[tuple[str, int]], *how: object, **more: Any
    ) -> Order:
        """Return an order to run the probe on these devices."""
        home = self.rig.root / "jobs" / str(more.pop("job", f"j{lease}"))
        kind = {
            (node.id, number): accelerator
            for node in self.rig.cluster.nodes
            for number, accelerator in enumerate(node.devices)
        }
        command = (self.rig.python, engines_probe.__file__, self.told, *(how or ("wait",)))
        settings: dict[str, Any] = {"grace_s": 10.0, "total_steps": 10, **more}
        made = Order(
            lease=lease,
            job=home.name,
            command=tuple(map(str, command)),
            directory=str(self.told),
            environment={"PROBE_ASKED": f"for lease {lease}"},
            devices=tuple(devices),
            accelerators=tuple(kind[device] for device in devices),
            checkpoint_dir=str(home / "checkpoint"),
            log_dir=str(home / "logs"),
            **settings,
        )
        self.orders[lease] = made
        return made

    async def start(
        self, lease: int, devices: Collection[tuple[str, int]], *how: object, **more: Any
    ) -> Order:
        """Launch the probe and wait until all its members have spoken."""
        order = self.order(lease, devices, *how, **more)
        await self.engine.launch(order)
        await self.spoken(lease)
        return order

    async def spoken(self, lease: int) -> None:
        """Wait until all members of a lease have spoken."""
        count = len(self.orders[lease].devices)
        await self.until(lambda: len(self.members(lease)) == count, f"lease {lease} to run")

    # -- what came of them ----------------------------------------------------------------------

    def members(self, lease: int) -> dict[int, dict[str, Any]]:
        """rank → what that member of the lease told."""
        found = {}
        for rank in range(len(self.orders[lease].devices)):
            with suppress(FileNotFoundError):
                text = (self.told / f"{lease}.{rank}.json").read_text(encoding="utf-8")
                found[rank] = json.loads(text)
        return found

    def left(self, lease: int) -> int:
        """Return how many members of the lease left when they were told to."""
        return len(list(self.told.glob(f"{lease}.*.left.json")))

    def alive(self, lease: int) -> int:
        """Return how many members of the lease live on this machine."""
        return sum(_is_alive(told["pid"]) for told in self.members(lease).values())

    def ends(self, lease: int) -> list[Ended]:
        """Return the reports of the lease's end."""
        return [one for one in self.seen if isinstance(one, Ended) and one.lease == lease]

    def starts(self, lease: int) -> int:
        """Return how often the lease was reported to have started."""
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
        """Wait for something that must come to pass."""
        patience_s = patience_s or self.rig.patience_s
        end = time.monotonic() + patience_s
        while not holds():
            require(time.monotonic() < end, f"waited {patience_s:g} s in vain for {what}")
            self._new.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._new.wait(), 0.02)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def open_files() -> int:
    """Return how many files this process holds open."""
    return len(os.listdir("/proc/self/fd"))
