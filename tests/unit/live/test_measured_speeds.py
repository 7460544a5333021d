"""Speeds that running jobs report become the believed speeds of their workloads at once."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.estimate.learned import DataSheetLearner
from fairlead.files.bundled import data_sheets
from fairlead.live.leases.renewal import Renewal
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.access.tokens import Principal
from fairlead.server.api.routes.insights import speeds as show_speeds
from fairlead.server.config.scheduling import changed_scheduling_config, load_scheduling_config

UNKNOWN = SpeedTable({SpeedKey("known", 1, "v100"): 10.0}, assumed=1.0)


class Reporter:
    """Reports of running jobs, as the job library sends them."""

    def __init__(self, world: ScriptedLive) -> None:
        self.world = world
        self.steps: dict[int, int] = {}

    async def report(self, job: str, *speeds: float) -> None:
        lease = await self.world.lease(job)
        for speed in speeds:
            self.steps[lease] = self.steps.get(lease, 0) + 2
            done = self.steps[lease]
            renewal = Renewal(rank=0, started=done, steps=done, steps_per_s=speed)
            assert self.world.live.renew(lease, renewal) is not None
        await self.world.live.write([])  # after all earlier inputs


def believed(world: ScriptedLive, job: str) -> dict[str, tuple[float, str]]:
    queries = world.live.queries
    speeds = queries.job_speeds(queries.job_number(job))
    return {speed.key.accelerator: (speed.steps_per_s, speed.source) for speed in speeds}


def test_measured_speed_is_used_for_running_and_queued_jobs_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            first = await world.submit(workload="new", accelerators=("v100",))
            queued = await world.submit(workload="new", accelerators=("v100",))
            free = await world.submit(workload="new")
            foreign = await world.submit(workload="new", tenant="other")
            assert believed(world, free) == {"v100": (1.0, "assumed"), "k80": (1.0, "assumed")}
            reporter = Reporter(world)
            await reporter.report(first, 90.0, 41.0)
            assert believed(world, queued) == {"v100": (1.0, "assumed")}
            await reporter.report(first, 40.0)
            # The median, and as an estimate on the accelerator that nobody has measured.
            assert believed(world, queued) == {"v100": (41.0, "measured")}
            assert believed(world, free) == {"v100": (41.0, "measured"), "k80": (41.0, "assumed")}
            assert believed(world, foreign) == {"v100": (1.0, "assumed"), "k80": (1.0, "assumed")}
            admin, other = Principal("root", "admin"), Principal("p", "tenant", "other")
            shown = [view.model_dump() for view in await show_speeds(world.live, admin)]
            assert {
                "workload": "new", "tenant": "default", "job": None, "gang": 1,
                "accelerator": "v100", "steps_per_s": 41.0, "source": "measured",
            }.items() <= shown[0].items()  # fmt: skip
            assert 0.0 <= shown[0]["age_s"] < 60.0
            views = await show_speeds(world.live, other)
            assert [view.source for view in views] == ["assumed", "assumed"]
            before = world.live.scheduler.changes
            await reporter.report(first, 40.5, 41.5, 40.0)
            assert world.live.scheduler.changes == before  # noise is no event
            assert world.live._speeds.events(0.0) == []
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            assert believed(world, queued) == {"v100": (41.0, "measured")}

    asyncio.run(scenario())


def test_jobs_without_a_workload_keep_their_own_speeds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=2", speeds=UNKNOWN) as world:
            jobs = [await world.submit(workload="") for _ in range(3)]
            reporter = Reporter(world)
            await reporter.report(jobs[0], 5.0, 5.0, 5.0)
            await reporter.report(jobs[1], 300.0, 300.0, 300.0)
            speeds = [believed(world, job)["v100"] for job in jobs]
            assert speeds == [(5.0, "measured"), (300.0, "measured"), (1.0, "assumed")]
            rows = world.live.scheduler.snapshot(1.0, 1.0).speed
            assert rows.tolist() == [[5.0], [300.0], [1.0]]
        async with scripted_live(tmp_path, devices="v100=2", speeds=UNKNOWN) as world:
            rows = world.live.scheduler.snapshot(1.0, 1.0).speed
            assert rows.tolist() == [[5.0], [300.0], [1.0]]

    asyncio.run(scenario())


def test_table_is_replaced_only_by_a_speed_that_differs_and_is_possible(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1", speeds=UNKNOWN) as world:
            job = await world.submit(workload="known")
            reporter = Reporter(world)
            await reporter.report(job, 10.3, 9.8, 10.1)
            assert believed(world, job) == {"v100": (10.0, "table")}
            await reporter.report(job, *[1000.0] * 5)
            assert believed(world, job) == {"v100": (10.0, "table")}
            await reporter.report(job, *[4.0] * 5)
            world.live.inbox.post(world.live._speeds.events)
            await world.live.write([])
            assert believed(world, job) == {"v100": (4.0, "measured")}

    asyncio.run(scenario())


def test_accelerators_that_differ_by_noise_alone_are_believed_equal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            jobs = [
                await world.submit(workload="new", accelerators=(name,))
                for name in ("v100", "k80")
            ]
            reporter = Reporter(world)
            await reporter.report(jobs[0], 40.0, 40.0, 40.0)
            await reporter.report(jobs[1], 41.0, 41.0, 41.0)
            assert believed(world, jobs[1]) == {"k80": (40.0, "measured")}

    asyncio.run(scenario())


def test_unmeasured_speeds_start_from_data_sheets_and_every_measurement_improves_them(
    tmp_path: Path,
) -> None:
    learning = SpeedTable({}, assumed=1.0, learner=DataSheetLearner.of(data_sheets()))

    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=learning) as world:
            first = await world.submit(workload="new", accelerators=("v100",))
            free = await world.submit(workload="new")
            guessed = believed(world, free)
            ratio = guessed["v100"][0] / guessed["k80"][0]
            assert 2.5 < ratio < 5.0
            await Reporter(world).report(first, 40.0, 40.0, 40.0)
            learnt = believed(world, free)
            assert learnt["v100"] == (40.0, "measured")
            assert learnt["k80"][0] == pytest.approx(40.0 / ratio, rel=1e-4)
            assert learnt["k80"][1] == "assumed"
            views = await show_speeds(world.live, Principal("root", "admin"))
            v100, k80 = sorted(
                (view for view in views if view.tenant == "default"),
                key=lambda view: view.accelerator,
                reverse=True,
            )
            assert v100.low is None is v100.high
            assert k80.low is not None
            assert k80.high is not None
            assert 3.0 < k80.low < learnt["k80"][0] < k80.high < 25.0
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=learning) as world:
            assert believed(world, free) == learnt
            # The stored configuration holds the learner, so that its events can be replayed.
            stored = load_scheduling_config(world.live.policy.config.text)
            assert stored.beliefs.learner == learning.learner
            changed = changed_scheduling_config(stored, policy="fifo")
            assert changed.beliefs.learner == learning.learner

    asyncio.run(scenario())
