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
        self.prepared: dict[str, tuple[tuple[str, int], ...]] = {}

    def prepared_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        return self.prepared

    async def prepare(self, *orders: LaunchOrder) -> None:
        devices = tuple(device for order in orders for device in order.devices)
        self.prepared[orders[0].job] = devices

    async def end_prepared(self, job: str) -> None:
        self.prepared.pop(job, None)

    def read(self, *used_gib: float, node: int = 0) -> None:
        """Report the memory in use on the devices of a node, of 10 GiB each."""
        readings = (
            DeviceReading(number=i, memory_used_gib=gib, memory_gib=10.0)
            for i, gib in enumerate(used_gib)
        )
        self._reports.put_nowait(DevicesRead(self._cluster.nodes[node].id, tuple(readings)))


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
            assert engine.prepared == ({first: (address,)} if fits else {})

    asyncio.run(run())


def test_prepared_processes_end_if_the_node_of_any_of_them_is_drained(tmp_path: Path) -> None:
    async def run() -> None:
        async with scripted_live(tmp_path, make_engine=PreparingEngine) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, PreparingEngine)
            first, second = [(node.id, 0) for node in live.scheduler.cluster.nodes]
            spread, stays = [await scripted.submit() for _ in range(2)]
            engine.prepared |= {spread: (first, second), stays: (first,)}
            await live.nodes.drain(second[0], "tester")
            await eventually(lambda: [*engine.prepared] == [stays])

    asyncio.run(run())


FORKING: dict[str, Any] = {
    "policy": "hadare:restart-s=0.1",
    "devices": "v100=1,k80=1",
    "make_engine": PreparingEngine,
}


async def _copies(scripted: ScriptedLive) -> dict[int, tuple[str, int]]:
    """Return lease → device of the two copies of the only job, once they run and have renewed."""
    live = scripted.live
    engine = scripted.engine
    assert isinstance(engine, PreparingEngine)
    for node in range(2):
        engine.read(3.0, node=node)
    await eventually(lambda: len(live.nodes.health.readings) == 2)
    await eventually(lambda: len(engine.open) == 2)
    opened = [*engine.open]
    for lease in opened:
        live.renew(lease, Renewal(rank=0, started=1, steps=1.0, steps_per_s=0.001))
    addresses = live.scheduler.cluster.addresses
    return {lease: addresses[live.queries.devices_of_lease(lease)[0]] for lease in opened}


def test_the_next_processes_of_copies_are_prepared_on_the_devices_that_they_have(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with scripted_live(tmp_path, **FORKING) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, PreparingEngine)
            job = await scripted.submit(steps=100_000, max_copies=2)
            copies = await _copies(scripted)
            await live.inbox.submit(lambda at: [ev.PlanDue(at)])
            await eventually(lambda: job in engine.prepared, "no process is prepared")
            assert sorted(engine.prepared[job]) == sorted(copies.values())

    asyncio.run(run())


def test_the_process_of_the_last_lease_starts_before_the_copies_are_done(tmp_path: Path) -> None:
    async def run() -> None:
        async with scripted_live(tmp_path, **FORKING) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, PreparingEngine)
            job = await scripted.submit(steps=10_000, max_copies=2)
            copies = await _copies(scripted)
            slow, fast = sorted(copies)
            parts = {lease: live.leases[lease].max_steps for lease in copies}
            assert sum(parts.values()) == 9_999

            async def renew(lease: int, left: float, steps_per_s: float) -> None:
                steps = parts[lease] - left
                live.leases[lease].steps = steps  # more than a job may claim so soon
                live.renew(lease, Renewal(rank=0, started=0, steps=steps, steps_per_s=steps_per_s))
                await live.write([])

            await renew(fast, 20.0, 2.0)
            await renew(slow, 40.0, 1.0)  # 40 s are left
            assert not engine.prepared
            await renew(slow, 25.0, 1.0)
            await eventually(lambda: engine.prepared == {job: (copies[fast],)})
            engine.prepared.clear()  # host memory was short
            await renew(slow, 20.0, 1.0)
            assert not engine.prepared

    asyncio.run(run())
