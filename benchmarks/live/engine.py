"""An engine that starts nothing: its leases last until they are told to stop.

It lets a server of a thousand devices be measured without a thousand processes. The live
benchmark makes it a plug-in of the name ``still``.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.base import Ended, Order, Report, Started
from fairlead.engines.plugin import OpenedEngine, Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.model.cluster import Cluster, Node

KINDS = ("v100", "p100", "k80")
PER_NODE = 8
LEASES = "leases.txt"
"""lease, its token and its job, a line for each start"""


@dataclass
class StillEngine:
    """As many devices as are asked for, eight a node, of three kinds in turn."""

    data: Path
    devices: int = 1000
    _reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue, init=False)
    _running: set[int] = field(default_factory=set, init=False)

    async def inventory(self) -> Cluster:
        """Return the nodes."""
        count = -(-self.devices // PER_NODE)
        sizes = [PER_NODE] * (count - 1) + [self.devices - PER_NODE * (count - 1)]
        return Cluster(
            tuple(Node(f"n{i}", (KINDS[i % len(KINDS)],) * n) for i, n in enumerate(sizes))
        )

    async def launch(self, order: Order) -> None:
        """Say that the lease has started."""
        with (self.data / LEASES).open("a", encoding="utf-8") as file:
            file.write(f"{order.lease} {order.environment['FAIRLEAD_JOB_TOKEN']} {order.job}\n")
        self._running.add(order.lease)
        self._reports.put_nowait(Started(order.lease))

    async def stop(self, lease: int) -> None:
        """Say that the lease has left with nothing saved."""
        if lease in self._running:
            self._running.discard(lease)
            self._reports.put_nowait(Ended(lease, "left", None))

    async def running(self) -> frozenset[int]:
        """Return the leases that were started and not stopped."""
        return frozenset(self._running)

    async def adopt(self, leases: Collection[int]) -> None:
        """Take all of them for running."""
        self._running.update(leases)

    def reports(self) -> AsyncIterator[Report]:
        """Yield starts and ends."""
        return self._each()

    async def _each(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    async def close(self) -> None:
        """Nothing is held."""


class StillPlugin:
    """Makes the engine known to the server under test."""

    options = StillEngine
    runs_here = True

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine; its speeds are emulated."""
        return OpenedEngine(StillEngine(data=site.data, **options), True)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Find nothing."""
        del site, options
        yield from ()


PLUGIN = StillPlugin()
