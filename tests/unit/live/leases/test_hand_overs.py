"""Processes that start before their leases, by the memory of real devices."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedEngine, ScriptedLive, scripted_live

from fairlead.engines.base import DeviceReading, DevicesRead, LaunchOrder
from fairlead.live.executors import WorkerThreads
from fairlead.live.leases.renewal import Renewal
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan


class PreparingEngine(ScriptedEngine):
    """An engine that lists the processes it should prepare."""

    prepares = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.prepared: dict[str, tuple[str, int]] = {}

    def prepared_jobs(self) -> Mapping[str, tuple[str, int]]:
        return self.prepared

    async def prepare(self, order: LaunchOrder) -> None:
        self.prepared[order.job] = order.devices[0]

    async def end_prepared(self, job: str) -> None:
        self.prepared.pop(job, None)

    def read(self, *used_gib: float) -> None:
        """Report the memory in use on the devices, of 10 GiB each."""
        readings = (
            DeviceReading(number=i, memory_used_gib=gib, memory_gib=10.0)
            for i, gib in enumerate(used_gib)
        )
        self._reports.put_nowait(DevicesRead(self._cluster.nodes[0].id, tuple(readings)))


class ScriptedPlans(WorkerThreads):
    """Computes the plans of a mechanism, or those of a test."""

    script: Plan | None = None

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        plan, memory = await super().plan(call, *arguments)
        return self.script or plan, memory


async def move(scripted: ScriptedLive, plans: ScriptedPlans, stopped: str, job: str) -> None:
    """Plan that a job replaces another one on its device, and apply the plan."""
    live, lease = scripted.live, await scripted.lease(stopped)
    device = live.queries.devices_of_lease(lease)
    start = Placements.of([Placement(live.queries.job_number(job), 0, device)])
    until = live.clock.now() + 1000.0
    plans.script = Plan(np.array([lease]), start, until, until)
    planned = len(live.rounds.rounds_s)
    await live.inbox.submit(lambda at: [ev.PlanDue(at)])
    await eventually(lambda: len(live.rounds.rounds_s) > planned)
    await live.inbox.submit(lambda at: [ev.RoundEnd(at)])
    await scripted.lease(job)


@pytest.mark.parametrize(("used_gib", "fits"), [(6.0, True), (8.0, False)])
def test_a_job_that_waits_is_prepared_if_the_memory_it_had_fits_beside_that_in_use(
    tmp_path: Path, used_gib: float, fits: bool
) -> None:
    async def run() -> None:
        plans = ScriptedPlans()
        async with scripted_live(
            tmp_path, devices="v100=2", workers=plans, make_engine=PreparingEngine
        ) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, PreparingEngine)
            first, second = [await scripted.submit() for _ in range(2)]
            lease = await scripted.lease(first)
            live.renew(lease, Renewal(rank=0, started=1, steps=1.0))
            (here,) = live.queries.devices_of_lease(lease)
            (there,) = live.queries.devices_of_lease(await scripted.lease(second))
            third = await scripted.submit()
            engine.read(*(3.0 if device == here else used_gib for device in range(2)))
            await eventually(lambda: len(live.nodes.health.readings) == 2)
            await move(scripted, plans, first, third)
            assert not engine.prepared
            await move(scripted, plans, second, first)  # it has been waiting
            address = live.scheduler.cluster.addresses[there]
            assert engine.prepared == ({first: address} if fits else {})

    asyncio.run(run())
