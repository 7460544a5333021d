"""Engine that starts no processes: its leases last until they are stopped.

It allows measuring a server of a thousand devices without a thousand processes. The live
benchmark registers it as plug-in ``still``.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.base import Ended, LaunchOrder, Report, Started
from fairlead.engines.plugin import OpenedEngine, Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.model.cluster import Cluster, Node

ACCELERATORS = ("v100", "p100", "k80")
PER_NODE = 8
LEASES = "leases.txt"
"""file with one line per start: lease, token, job"""


@dataclass
class StillEngine:
    """Cluster of ``devices`` devices, eight per node, of three accelerators in turn."""

    data: Path
    devices: int = 1000
    _reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue, init=False)
    _running: set[int] = field(default_factory=set, init=False)

    async def inventory(self) -> Cluster:
        """Return the nodes."""
        count = -(-self.devices // PER_NODE)
        sizes = [PER_NODE] * (count - 1) + [self.devices - PER_NODE * (count - 1)]
        return Cluster(
            tuple(
                Node(f"n{i}", (ACCELERATORS[i % len(ACCELERATORS)],) * n)
                for i, n in enumerate(sizes)
            )
        )

    async def launch(self, order: LaunchOrder) -> None:
        """Report the start of the lease."""
        with (self.data / LEASES).open("a", encoding="utf-8") as file:
            file.write(f"{order.lease} {order.environment['FAIRLEAD_JOB_TOKEN']} {order.job}\n")
        self._running.add(order.lease)
        self._reports.put_nowait(Started(order.lease))

    async def stop(self, lease: int) -> None:
        """Report that the lease has left without a checkpoint."""
        if lease in self._running:
            self._running.discard(lease)
            self._reports.put_nowait(Ended(lease, "left", None))

    async def running(self) -> frozenset[int]:
        """Return the leases that were started and not stopped."""
        return frozenset(self._running)

    async def adopt(self, leases: Collection[int]) -> None:
        """Treat all leases as running."""
        self._running.update(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield starts and ends."""
        return self._each()

    async def _each(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    async def close(self) -> None:
        """Do nothing."""


class StillPlugin:
    """Plug-in of the engine for the server under test."""

    options = StillEngine
    runs_here = True

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine; its speeds are emulated."""
        return OpenedEngine(StillEngine(data=site.data, **options), True)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield no findings."""
        del site, options
        yield from ()


PLUGIN = StillPlugin()
