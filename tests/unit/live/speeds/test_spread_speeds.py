"""Gangs on more nodes than they need measure a speed of their own, which planners use."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.files import parse_cluster
from fairlead.live.leases.renewal import Renewal
from fairlead.mechanisms.hadar.bids import JobUtilities
from fairlead.mechanisms.hadar.utilities import Utility, UtilityTerms
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster, Node
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.measured import Selection
from fairlead.model.speeds.profile_speeds import spread_speeds
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies._packing.table import UnitRules, unit_table
from fairlead.server.access.tokens import Principal
from fairlead.server.api.routes.speeds import measured_speeds, show_speeds

ONE_PAIR = Cluster(
    (Node("whole", ("v100",) * 2), Node("left", ("v100",)), Node("right", ("v100",)))
)
"""one gang of two has a node, another one is spread"""
LISTED = SpeedTable({SpeedKey("w", 2, "v100"): 40.0})
ADMIN = Principal("root", "admin")


async def report(world: ScriptedLive, job: str, speed: float) -> None:
    lease = await world.lease(job)
    for steps in (1, 2, 3):
        renewal = Renewal(rank=0, started=steps, steps=steps, steps_per_s=speed)
        assert world.live.renew(lease, renewal) is not None
    await world.live.write([])  # after all earlier inputs


async def placements(world: ScriptedLive, *jobs: str) -> dict[str, str]:
    """Return placement → the job that runs so."""
    placed: dict[str, str] = {}
    for job in jobs:
        key = world.live.queries.speed_key(await world.lease(job))
        assert key is not None
        placed[key.placement] = job
    return placed


def test_a_spread_gang_measures_its_own_speed_and_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices=ONE_PAIR, speeds=LISTED) as world:
            jobs = [await world.submit(workload="w", gang=2) for _ in range(2)]
            placed = await placements(world, *jobs)
            await report(world, placed["consolidated"], 41.0)  # as the table has it
            await report(world, placed["spread"], 20.0)
            (view,) = await measured_speeds(world.live, ADMIN)
            assert (view.placement, view.steps_per_s, view.table_steps_per_s) == (
                "spread", 20.0, 40.0
            )  # fmt: skip
            shown = await show_speeds(world.live, ADMIN)
            believed = {view.placement: (view.steps_per_s, view.source) for view in shown}
            assert believed == {"consolidated": (40.0, "table"), "spread": (20.0, "measured")}
        async with scripted_live(tmp_path, devices=ONE_PAIR, speeds=LISTED) as world:
            shown = await show_speeds(world.live, ADMIN)
            assert {view.placement: view.steps_per_s for view in shown}["spread"] == 20.0
            assert await world.live.speeds.forget(Selection(workload="w"), "root") == 1
            shown = await show_speeds(world.live, ADMIN)
            assert [view.placement for view in shown] == ["consolidated"]

    asyncio.run(scenario())


def test_speed_of_a_gang_that_needs_several_nodes_counts_for_every_placement(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        cluster = parse_cluster("v100=2/1")
        async with scripted_live(tmp_path, devices=cluster, speeds=LISTED) as world:
            job = await world.submit(workload="w", gang=2)
            await report(world, job, 20.0)
            (view,) = await show_speeds(world.live, ADMIN)
            assert (view.placement, view.steps_per_s) == ("consolidated", 20.0)
            assert spread_speeds(world.live.scheduler.snapshot(1.0, 1.0)).tolist() == [[20.0]]

    asyncio.run(scenario())


def _steps(terms: UtilityTerms) -> FloatArray:
    """Return the 1,000 steps of each job, so that its utility is its steps per second."""
    return np.full_like(terms.elapsed_s, 1000.0)


def test_planners_use_the_spread_speed_that_a_tenant_has_measured(tmp_path: Path) -> None:
    """The spread gang is the faster one here, so that a policy has a use for it."""

    async def scenario() -> None:
        async with scripted_live(tmp_path, devices=ONE_PAIR, speeds=LISTED) as world:
            jobs = [
                await world.submit(workload="w", gang=2, tenant=tenant, steps=1000)
                for tenant in "ab"
            ]
            placed = await placements(world, *jobs)
            await report(world, placed["spread"], 60.0)
            snap = world.live.scheduler.snapshot(1.0, 1.0)
            expected = [60.0 if job == placed["spread"] else 40.0 for job in jobs]
            assert spread_speeds(snap)[snap.profile, 0].tolist() == expected
            table = unit_table(snap, np.zeros((2, 0)), UnitRules(placement=True))
            options = {
                (table.columns[column].placement, speed)
                for column, speed in zip(
                    table.column.tolist(), table.speed_first.tolist(), strict=True
                )
            }
            assert options == {("consolidated", 40.0), ("spread", 60.0)}
            assert len(table.classes.count) == 2  # alike but for their spread speeds
            utilities = JobUtilities.of(
                snap, Utility(_steps, from_now=True), restart_s=0.0, round_s=60.0, horizon=0.0
            )
            ratio = utilities.spread[0, :, 0] / utilities.together[0, :, 0]
            assert ratio.tolist() == pytest.approx([speed / 40.0 for speed in expected], rel=1e-3)

    asyncio.run(scenario())
