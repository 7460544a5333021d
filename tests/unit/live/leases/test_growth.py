"""Gangs that grow: they are stopped once the processes of their new members are ready."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.support.waiting import eventually
from tests.unit.live.leases.test_hand_overs import PreparingEngine, ScriptedPlans
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.engines.base import LaunchOrder
from fairlead.live.leases.renewal import Renewal, RenewalAnswer
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan


class GrowingEngine(PreparingEngine):
    """An engine whose new members are ready when a test says so."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.ready = asyncio.Event()
        self.sizes: list[int] = []

    async def launch(self, order: LaunchOrder) -> None:
        self.sizes.append(len(order.devices))
        await super().launch(order)

    def is_growing(self, lease: int) -> bool:
        return lease in self.open and not self.ready.is_set()


@pytest.mark.parametrize(
    ("change", "sizes"), [("ready", [1, 2]), ("moved", [1, 1]), ("cancelled", [1])]
)
def test_a_gang_trains_on_until_its_new_members_are_ready_or_the_plan_changes(
    tmp_path: Path, change: str, sizes: list[int]
) -> None:
    async def run() -> None:
        plans = ScriptedPlans()
        async with scripted_live(
            tmp_path, devices="v100=2", workers=plans, make_engine=GrowingEngine
        ) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, GrowingEngine)
            job = await scripted.submit(gang=1, min_gang=1, max_gang=2)
            lease = await scripted.lease(job)
            assert not _renew(scripted, lease)["leave"]
            live.leases[lease].until = live.clock.now()  # the round ends
            (held,) = live.queries.devices_of_lease(lease)
            await _plan(scripted, plans, job, (1 - held, held), stop=[lease])
            await eventually(lambda: live.leases[lease].waits_for_growth)
            assert job in engine.prepared
            assert live.leases[lease].leaving
            answer = _renew(scripted, lease)
            assert not answer["leave"]
            assert answer["valid_s"] > 30.0
            assert lease in engine.open
            if change == "cancelled":
                await live.jobs.cancel(job, "tester")
            elif change == "moved":
                await _plan(scripted, plans, job, (1 - held,), stop=[])
            else:
                engine.ready.set()
            await scripted.recorded(lease)
            if change != "cancelled":
                await scripted.lease(job)
            assert engine.sizes == sizes

    asyncio.run(run())


def _renew(scripted: ScriptedLive, lease: int) -> RenewalAnswer:
    answer = scripted.live.renew(lease, Renewal(rank=0, started=1, steps=1.0))
    assert answer is not None
    return answer


async def _plan(
    scripted: ScriptedLive,
    plans: ScriptedPlans,
    job: str,
    devices: tuple[int, ...],
    *,
    stop: list[int],
) -> None:
    """Plan that a job gets devices, and apply the plan."""
    live = scripted.live
    start = Placements.of([Placement(live.queries.job_number(job), 0, devices)])
    until = live.clock.now() + 1000.0
    plans.script = Plan(np.array(stop, dtype=np.int64), start, until, until)
    planned = len(live.rounds.rounds_s)
    await live.inbox.submit(lambda at: [ev.PlanDue(at)])
    await eventually(lambda: len(live.rounds.rounds_s) > planned)
    await live.inbox.submit(lambda at: [ev.RoundEnd(at)])
