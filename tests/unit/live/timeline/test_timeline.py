"""Timeline: intervals in columns, averages of shares, and hours that survive restarts."""

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.clock import Clock
from fairlead.live.driver import Live
from fairlead.live.executors import WorkerThreads
from fairlead.live.timeline.columns import HIDDEN, MARKS, Window, device_columns, jobs_in
from fairlead.live.timeline.hours import HOUR_S, KIND, NEWEST, Hour, hour_of, key
from fairlead.live.timeline.intervals import HeldInterval, Intervals, merged
from fairlead.live.timeline.outages import Outage, joined
from fairlead.live.timeline.recorder import TimelineRecorder
from fairlead.live.timeline.shares import Share, ShareColumns, ShareSample, series


def held(
    lease: int,
    job: str,
    devices: tuple[int, ...],
    began: float,
    ended: float,
    ending: str = "open",
) -> HeldInterval:
    return HeldInterval(lease, job, f"of-{job}", devices, began, ended, ending)


def runs(intervals: Intervals, window: Window, *hidden: str) -> list[tuple[object, ...]]:
    visible = np.array([job not in hidden for job, _ in intervals.jobs])
    result = device_columns(intervals, visible, window)
    names = {i: job for i, (job, _) in enumerate(intervals.jobs)} | {HIDDEN: "hidden"}
    columns = (result.run_device, result.run_first, result.run_end)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    return [
        (*each, names[job]) for each, job in zip(numbers, result.run_job.tolist(), strict=True)
    ]


def marks(intervals: Intervals, window: Window) -> list[tuple[object, ...]]:
    result = device_columns(intervals, np.ones(len(intervals.jobs), dtype=bool), window)
    columns = (result.mark_device, result.mark_column, result.mark_kind)
    return [
        (device, column, MARKS[mark])
        for device, column, mark in zip(*(each.tolist() for each in columns), strict=True)
    ]


def test_a_column_has_the_job_that_held_the_device_longest() -> None:
    intervals = Intervals.of(
        [
            held(1, "a", (0, 1), 0.0, 14.0),
            held(2, "b", (0,), 14.0, 17.0),
            held(3, "c", (0,), 17.0, 40.0),
            held(4, "d", (3,), 31.0, 31.5),
        ]
    )
    window = Window(0.0, 40.0, 4, range(4))
    assert runs(intervals, window) == [
        *((0, 0, 2, "a"), (0, 2, 4, "c")),
        *((1, 0, 2, "a"), (3, 3, 4, "d")),
    ]
    assert runs(intervals, window, "a", "c") == [
        *((0, 0, 4, "hidden"), (1, 0, 2, "hidden"), (3, 3, 4, "d")),
    ]
    assert runs(intervals, Window(12.0, 16.0, 2, range(1))) == [(0, 0, 1, "a"), (0, 1, 2, "b")]
    assert runs(intervals, Window(100.0, 200.0, 5, range(4))) == []
    assert jobs_in(intervals, Window(10.0, 20.0, 1, range(4))).device_s.tolist() == [8, 3, 3, 0]


def test_ends_of_leases_are_marked_by_their_cause() -> None:
    intervals = Intervals.of(
        [
            held(1, "a", (0, 1), 0.0, 10.0, "preempted"),
            held(5, "a", (1, 0), 12.0, 20.0, "preempted"),
            held(7, "a", (2, 3), 25.0, 30.0, "finished"),
            held(8, "b", (4,), 0.0, 20.5, "failed"),
            held(9, "b", (4,), 20.6, 20.9, "lost"),
        ]
    )
    assert marks(intervals, Window(0.0, 40.0, 40, range(5))) == [
        *((0, 10, "preempted"), (0, 20, "moved"), (1, 10, "preempted"), (1, 20, "moved")),
        (4, 20, "lost"),
    ]
    assert jobs_in(intervals, Window(0.0, 40.0, 4, range(5))).failures.tolist() == [0, 2]


def test_merged_hours_have_one_row_per_lease() -> None:
    first = Intervals.of(
        [held(1, "a", (0,), 10.0, 3600.0), held(2, "b", (1, 2), 5.0, 9.0, "left")]
    )
    second = Intervals.of([held(3, "c", (4,), 3700.0, 3800.0), held(1, "a", (0,), 10.0, 3900.0)])
    assert merged([]).rows() == []
    whole = merged([first, second])
    assert sorted(whole.rows()) == [
        held(1, "a", (0,), 10.0, 3900.0),
        held(2, "b", (1, 2), 5.0, 9.0, "left"),
        held(3, "c", (4,), 3700.0, 3800.0),
    ]


def test_averages_of_shares_fade_and_gaps_are_unknown() -> None:
    samples = [
        ShareSample(0.0, {"a": Share(0.5, 1.0)}),
        ShareSample(60.0, {"a": Share(0.5, 0.0), "b": Share(0.5, 1.0)}),
        ShareSample(120.0, {"a": Share(0.5, 0.0), "b": Share(0.5, 1.0)}),
    ]
    parts = [ShareColumns.of(samples[:1]), ShareColumns.of(samples[1:])]
    result = series(parts, ["a", "b"], begin=30.0, end=630.0, columns=10, half_life_s=60.0)
    assert result.received[:, 0].tolist()[:3] == pytest.approx([0.5, 0.0, 0.0])
    assert result.received[:, 1].tolist()[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert result.entitled[:, 0].tolist()[:3] == pytest.approx([0.5, 0.5, 0.5])
    assert all(map(math.isnan, result.received[4:, 0].tolist()))
    # One half-life of 1, then half a half-life of 0.
    faded = 0.5 * 2**-0.5 / (1 - 2**-1.5)
    assert result.received_average[0, 0] == pytest.approx(faded)
    assert result.entitled_average[:, 0].tolist() == pytest.approx([0.5] * 10)
    assert series([], ["a"], begin=0.0, end=9.0, columns=3, half_life_s=1.0).received.shape == (
        3,
        1,
    )


class _SetClock(Clock):
    """A clock that a test sets."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


def test_ended_leases_survive_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        async with scripted_live(tmp_path, devices="v100=1") as site:
            job = await site.submit(tenant="red")
            await site.fail(job)
            await site.submit(tenant="blue")
            before = await rows_now(site.live)
            assert (before[0].job, before[0].tenant, before[0].ending) == (job, "red", "failed")
        async with scripted_live(tmp_path, devices="v100=1") as site:
            again = await rows_now(site.live)
            assert again[0][:4] == before[0][:4]
            assert len({row.lease for row in again}) == len(again)

    asyncio.run(check())


def test_an_hour_ends_with_its_open_leases(tmp_path: Path) -> None:
    async def check() -> None:
        async with scripted_live(tmp_path, devices="v100=2") as site:
            live = site.live
            jobs = [await site.submit(), await site.submit(tenant="other")]
            for job in jobs:
                await site.lease(job)
            clock = _SetClock(live.clock.now())
            recorder = recorder_of(live, clock)
            first = hour_of(clock.at)
            clock.at += 2 * HOUR_S
            recorder.save_all()
            for hour in (first, first + 1):
                stored = Hour.from_text(live.store.document(KIND, key(hour))).intervals.rows()
                assert sorted(row.job for row in stored) == jobs
                assert {row.ended_at for row in stored} == {(hour + 1) * HOUR_S}
            assert live.store.document(KIND, NEWEST) == str(first + 2)
            recent = recorder.recent().hours()
            assert max(recent) == first + 2
            assert sorted(row.job for row in recent[first + 2].intervals.rows()) == jobs
            assert recent[first + 2].shares.rows()[-1].shares["other"].received == 0.5

    asyncio.run(check())


def test_outages_of_nodes_are_kept_by_the_hour_and_over_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        async with scripted_live(tmp_path, devices="v100=2/1") as site:
            live = site.live
            first, second = (node.id for node in live.scheduler.cluster.nodes)
            await live.nodes.drain(first, "operator")
            await live.nodes.return_node(first, "operator")
            await live.nodes.drain(second, "operator")
            (over,) = (outage for outage in await outages_now(live) if outage.node == first)
            clock = _SetClock(live.clock.now())
            recorder, hour = recorder_of(live, clock), hour_of(clock.at)
            clock.at += 2 * HOUR_S
            recorder.save_all()
            kept = [Hour.from_text(live.store.document(KIND, key(hour + i))) for i in (0, 1)]
            ends = [{each.node: each.ended_at for each in one.outages} for one in kept]
            assert [end[second] for end in ends] == [(hour + i) * HOUR_S for i in (1, 2)]
            assert [each.node for each in recorder.recent().hours()[hour + 2].outages] == [second]
        async with scripted_live(tmp_path, devices="v100=2/1") as site:
            lasting = {each.node: each for each in await outages_now(site.live)}[second]
            await site.live.nodes.return_node(second, "operator")
            now = {each.node: each for each in await outages_now(site.live)}
            assert now[first] == pytest.approx(over, abs=1e-3)
            assert now[second].began_at == pytest.approx(lasting.began_at, abs=1e-3)
            assert (await outages_now(site.live))[-1].ended_at == now[second].ended_at

    asyncio.run(check())


def test_an_hour_of_an_earlier_version_has_no_outages() -> None:
    text = Hour(Intervals.of([held(1, "a", (0,), 0.0, 9.0)]), ShareColumns.of(())).as_text()
    earlier = {name: part for name, part in json.loads(text).items() if name != "outages"}
    hour = Hour.from_text(json.dumps(earlier))
    assert (len(hour.intervals), hour.outages) == (1, ())


def recorder_of(live: Live, clock: Clock) -> TimelineRecorder:
    made = TimelineRecorder(
        live.store,
        live.token,
        live.counters,
        live.queries,
        clock=clock,
        workers=WorkerThreads(),
    )
    made.restore()
    return made


async def outages_now(live: Live) -> list[Outage]:
    now = live.clock.now()
    hours = await live.timeline.hours(now - 60.0, now)
    return joined(outage for hour in hours for outage in hour.outages)


async def rows_now(live: Live) -> list[HeldInterval]:
    now = live.clock.now()
    hours = await live.timeline.hours(now - 60.0, now)
    return sorted(merged([hour.intervals for hour in hours]).rows())
