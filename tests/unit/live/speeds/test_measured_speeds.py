"""Speeds that running jobs report become the believed speeds of their workloads at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.estimate.learned import DataSheetLearner
from fairlead.files import format_speeds
from fairlead.files.bundled import data_sheets
from fairlead.live.leases.renewal import Renewal
from fairlead.model.errors import InputError
from fairlead.model.speeds.believed import doubt_of
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.measured import Selection
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.access.tokens import AuthError, Principal
from fairlead.server.api.routes.speeds import (
    forget_speeds,
    import_speeds,
    measured_speeds,
    show_speeds,
)
from fairlead.server.api.speed_messages import SpeedsImport
from fairlead.server.config.scheduling import (
    build_scheduling_config,
    changed_scheduling_config,
    load_scheduling_config,
)

UNKNOWN = SpeedTable({SpeedKey("known", 1, "v100"): 10.0}, assumed=1.0)


class Reporter:
    """Reports of running jobs, as the job library sends them."""

    def __init__(self, world: ScriptedLive) -> None:
        self.world = world
        self.steps: dict[int, int] = {}

    async def report(self, job: str, *speeds: float, **metrics: float) -> None:
        lease = await self.world.lease(job)
        for speed in speeds:
            self.steps[lease] = self.steps.get(lease, 0) + 2
            done = self.steps[lease]
            renewal = Renewal(rank=0, started=done, steps=done, steps_per_s=speed, metrics=metrics)
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
            assert world.live.speeds.measurements.events(0.0) == []
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
            world.live.inbox.post(world.live.speeds.measurements.events)
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
            gangs = await show_speeds(world.live, Principal("root", "admin"), gang=(1, 2, 8))
            curve = {v.gang: v for v in gangs if (v.tenant, v.accelerator) == ("default", "v100")}
            assert curve[1].source == "measured"
            assert curve[1].steps_per_s < curve[2].steps_per_s < curve[8].steps_per_s < 8 * 40.0
            widths = [(curve[n].high or 0.0) / (curve[n].low or 1.0) for n in (2, 8)]
            assert 1.0 < widths[0] < widths[1]  # the doubt grows with the distance
            other = await world.submit(workload="other", speeds={"k80": 9.0})
            declared = believed(world, other)
            assert declared["k80"][0] == pytest.approx(9.0, rel=0.05)
            assert declared["k80"][1] == "assumed"
            with pytest.raises(InputError, match="speeds: none on an accelerator of the cluster"):
                await world.submit(workload="other", speeds={"v10": 9.0})
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=learning) as world:
            assert believed(world, free) == learnt
            assert believed(world, other) == declared
            # The stored configuration holds the learner, so that its events can be replayed.
            stored = load_scheduling_config(world.live.policy.config.text)
            assert stored.beliefs.learner == learning.learner
            changed = changed_scheduling_config(stored, policy="fifo")
            assert changed.beliefs.learner == learning.learner

    asyncio.run(scenario())


def test_the_quantile_of_decisions_is_stored_and_believed_speeds_stay_medians() -> None:
    learner = DataSheetLearner.of(data_sheets())
    table = SpeedTable({SpeedKey("w", 1, "k80"): 1.0}, assumed=1.0, learner=learner, quantile=0.8)
    stored = load_scheduling_config(build_scheduling_config("fifo", None, 60.0, table).text)
    changed = changed_scheduling_config(stored, speeds=format_speeds(table))
    key = SpeedKey("w", 1, "v100")
    for beliefs in (stored.beliefs, changed.beliefs):
        planned = beliefs.speed("w", ["v100"])
        median = beliefs.medians.speed("w", ["v100"])
        assert 1.3 * median < planned <= 2.0 * median
        assert doubt_of(beliefs.medians, key) == doubt_of(beliefs, key)
        assert beliefs.speed("w", ["k80"]) == 1.0
    explores = replace(table, quantile=0.5, trials=Trials({"w": 5}))
    config = build_scheduling_config("fifo", None, 60.0, explores)
    for settings in (load_scheduling_config(config.text), changed_scheduling_config(config)):
        assert settings.beliefs.trials is not None
    assert explores.medians.speed("w", ["v100"]) == median < explores.speed("w", ["v100"])
    certain = replace(table, quantile=0.99)
    assert certain.speed("w", ["v100"]) == pytest.approx(2.0 * median, rel=1e-4)


def test_operator_imports_and_forgets_speeds_and_both_survive_a_restart(tmp_path: Path) -> None:
    admin, tenant = Principal("root", "admin"), Principal("p", "tenant", "default")
    table = "workload,gang,accelerator,steps_per_s\nnew,1,v100,8\n"

    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            live = world.live
            job = await world.submit(workload="new", accelerators=("v100",))
            await Reporter(world).report(job, 5.0, 5.0, 5.0)
            imported = await import_speeds(SpeedsImport(speeds=table), live, admin)
            assert imported.imported == 1
            assert imported.speeds.startswith("2 speeds, ")
            assert believed(world, job) == {"v100": (5.0, "measured")}
            (view,) = await measured_speeds(live, tenant)
            assert (view.workload, view.tenant, view.accelerator) == ("new", "default", "v100")
            assert (view.steps_per_s, view.table_steps_per_s) == (5.0, 8.0)
            assert not await measured_speeds(live, Principal("p", "tenant", "other"))
            with pytest.raises(InputError, match="workload: no such speed was measured"):
                await live.speeds.forget(Selection("", "new", "k80"), "root")
            for wrong in (import_speeds(SpeedsImport(speeds=table), live, tenant),
                          forget_speeds(live, tenant)):  # fmt: skip
                with pytest.raises(AuthError):
                    await wrong
            with pytest.raises(InputError, match="speeds:2: steps_per_s: negative"):
                await import_speeds(SpeedsImport(speeds=table.replace("8", "-8")), live, admin)
            assert believed(world, job) == {"v100": (5.0, "measured")}
            answer = await forget_speeds(live, admin, workload="new")
            assert answer.forgotten == 1
            assert believed(world, job) == {"v100": (8.0, "table")}
            audited = {entry["action"]: entry["subject"] for entry in live.store.audit_trail()}
            assert audited["forget speeds"] == "new"
            assert "policy" in audited
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            assert believed(world, job) == {"v100": (8.0, "table")}

    asyncio.run(scenario())


def test_out_of_memory_teaches_where_a_workload_does_not_fit(tmp_path: Path) -> None:
    async def fail_with(world: ScriptedLive, job: str, text: str) -> str:
        """Fail a job with these last words; return the accelerator on which it ran."""
        lease = await world.lease(job)
        shared = world.live.queries.shared_devices(lease)
        assert shared is not None
        directory = world.live.orders.log_dir(job)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{lease}.0.log").write_text(text)
        await world.fail(job)
        return shared.accelerators[0]

    oom = "step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB\n"

    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            job, broken = [await world.submit(workload=name) for name in ("large", "wrong")]
            both = {"v100", "k80"}
            await fail_with(world, broken, "ValueError: out of memory of yesterday\n")
            small = await fail_with(world, job, oom)
            await eventually(lambda: believed(world, job).keys() != both)
            (other,) = both - {small}
            assert believed(world, job).keys() == {other}
            assert believed(world, broken).keys() == both
            # It can run nowhere else, so another lesson would leave it without any device.
            assert await fail_with(world, job, oom) == other
        async with scripted_live(tmp_path, devices="v100=1,k80=1", speeds=UNKNOWN) as world:
            assert believed(world, job).keys() == {other}
            await world.live.speeds.forget(Selection(accelerator=small), "root")
            assert believed(world, job).keys() == both

    asyncio.run(scenario())


def test_job_is_not_sent_to_devices_with_less_memory_than_it_has_reported(tmp_path: Path) -> None:
    """An A100 has 40 GiB, a V100 16 GiB and a K80 12 GiB."""
    devices = "a100=2,v100=1,k80=1"

    async def scenario() -> None:
        async with scripted_live(tmp_path, devices=devices, speeds=UNKNOWN) as world:
            small = await world.submit(workload="small", accelerators=("a100",))
            large = await world.submit(workload="large", accelerators=("a100",))
            tried = await world.submit(workload="large", accelerators=("v100",))
            await world.lease(tried)
            reporter = Reporter(world)
            await reporter.report(small, 5.0, 5.0, 5.0, memory_gib=11.0)
            await reporter.report(large, 5.0, 5.0, 5.0, memory_gib=20.0)
            fits = {"a100": (5.0, "measured"), "v100": (5.0, "assumed"), "k80": (5.0, "assumed")}
            assert believed(world, await world.submit(workload="small")) == fits
            later = await world.submit(workload="large")
            del fits["k80"]  # on the V100, a job of the workload runs in spite of the figures
            assert believed(world, later) == fits
            assert world.live.speeds.measurements.events(0.0) == []
        async with scripted_live(tmp_path, devices=devices, speeds=UNKNOWN) as world:
            assert believed(world, later) == fits

    asyncio.run(scenario())
