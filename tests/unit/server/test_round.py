"""The running round: its end, and the changes of the plan that applies then."""

import asyncio
from pathlib import Path

import numpy as np
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.server.api.rounds.messages import PlannedChange
from fairlead.server.api.rounds.views import round_view
from fairlead.server.api.views import share_views

SPEEDS = SpeedTable({SpeedKey("m", 1, "v100"): 3.0, SpeedKey("m", 1, "k80"): 1.0})


def test_changes_are_known_once_the_next_round_is_planned_and_only_to_their_readers(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=1", speeds=SPEEDS) as site:
            live = site.live
            assert round_view(live, lambda _: True).ends_at is None
            first = await site.submit(tenant="red", preempt="yes")
            lease = await site.lease(first)
            second = await site.submit(tenant="blue", preempt="yes")
            before = round_view(live, lambda _: True)
            assert before.ends_at is not None
            assert (before.plan_at, before.planned) == (before.ends_at - 15.0, False)
            assert (before.changes, before.hidden) == ([], 0)
            until = before.ends_at + 60.0
            live.scheduler.pending = Plan(
                np.array([lease]), Placements.of([Placement(1, 0, (0,))]), until, until
            )
            stop = PlannedChange(job=first, tenant="red", action="stop", accelerators={})
            start = PlannedChange(
                job=second, tenant="blue", action="start", accelerators={"v100": 1}
            )
            planned = round_view(live, lambda _: True)
            assert planned.changes == [stop, start]
            assert (planned.plan_at, planned.ends_at) == (None, before.ends_at)
            seen = round_view(live, lambda tenant: tenant == "red")
            assert (seen.changes, seen.hidden) == ([stop], 1)

    asyncio.run(scene())


def test_shares_tell_waiting_jobs_devices_and_effective_speed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=SPEEDS) as site:
            for _ in range(3):
                await site.submit(tenant="red")
            await eventually(lambda: len(site.engine.open) >= 2)
            (share,) = share_views(site.live)
            assert (share.jobs, share.running) == (3, 2)
            assert share.devices == {"v100": 1, "k80": 1}
            assert share.speed == 1.5 + 0.5  # the average device makes 2 steps per second

    asyncio.run(scene())
