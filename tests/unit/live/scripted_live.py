"""A live scheduler in this process, whose leases end when a test ends them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

from fairlead.engines.base import Ended, LaunchOrder, Report
from fairlead.files import parse_cluster
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.live.executors import Workers
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.live.job_spec import JobSpec
from fairlead.model.cluster import Cluster
from fairlead.model.lease_outcome import LeaseOutcome
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.server.config.scheduling import build_scheduling_config, load_scheduling_config
from fairlead.store import Store

SPEEDS = SpeedTable(
    {SpeedKey("m", gang, name): 1.0 for gang in (1, 2) for name in ("v100", "k80")}
)


class ScriptedEngine:
    """Starts no process; its leases last until a test ends them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self.open: dict[int, str] = {}
        """lease → job"""

    async def inventory(self) -> Cluster:
        return self._cluster

    async def launch(self, order: LaunchOrder) -> None:
        self.open[order.lease] = order.job

    async def stop(self, lease: int) -> None:
        if lease in self.open:
            self.end(lease, "left")

    async def running(self) -> frozenset[int]:
        return frozenset(self.open)

    async def adopt(self, leases: Collection[int]) -> None:
        del leases

    async def close(self) -> None:
        pass

    def reports(self) -> AsyncIterator[Report]:
        return self._each()

    async def _each(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def end(
        self,
        lease: int,
        ending: LeaseOutcome,
        message: str = "",
        steps: float | None = None,
        **more: Any,
    ) -> None:
        del self.open[lease]
        self._reports.put_nowait(Ended(lease, ending, steps, message, **more))


class ScriptedLive:
    """A scheduler and its scripted engine."""

    def __init__(self, live: Live, engine: ScriptedEngine) -> None:
        self.live, self.engine = live, engine

    async def submit(self, **fields: Any) -> str:
        spec = {"id": "", "command": ("true",), "workload": "m", **fields}
        return (await self.live.jobs.submit(JobSpec(**spec), "tester")).id

    async def lease(self, job: str) -> int:
        """Return the lease of a job once it runs."""

        def leases() -> list[int]:
            return [lease for lease, holder in self.engine.open.items() if holder == job]

        return (await eventually(leases, f"{job} does not run"))[0]

    async def fail(self, job: str) -> None:
        """End a lease of a job as failed; return once the scheduler has recorded it."""
        lease = await self.lease(job)
        self.engine.end(lease, "failed", "it broke")
        await self.recorded(lease)

    async def recorded(self, lease: int) -> None:
        """Wait until the scheduler has recorded the end of a lease."""
        await eventually(lambda: lease not in self.live.leases, f"lease {lease} does not end")
        await self.live.write([])


@contextlib.asynccontextmanager
async def scripted_live(
    data: Path,
    *,
    devices: str | Cluster = "v100=2,k80=2",
    policy: str = "max-min",
    speeds: SpeedTable = SPEEDS,
    workers: Workers | None = None,
    notified_urls: AllowedUrls | None = None,
    device_chooser: str = "",
    make_engine: Callable[[Cluster], ScriptedEngine] = ScriptedEngine,
) -> AsyncIterator[ScriptedLive]:
    """Run a scheduler on these devices, restored from its data directory."""
    cluster = parse_cluster(devices) if isinstance(devices, str) else devices
    engine = make_engine(cluster)
    store = Store(f"sqlite:///{data}/fairlead.db")
    token = store.acquire("a test")
    assert token is not None
    config = LiveConfig(
        cluster=cluster,
        scheduling=build_scheduling_config(policy, None, 60.0, speeds),
        load_scheduling=load_scheduling_config,
        start_settings=policy,
        data=data,
        environment=lambda *_: {},
        device_chooser=device_chooser,
        notified_urls=notified_urls or AllowedUrls(),
    )
    with contextlib.closing(store):
        live = Live(store, engine, config, token, workers=workers)
        try:
            await live.start()
            yield ScriptedLive(live, engine)
        finally:
            await live.stop()
