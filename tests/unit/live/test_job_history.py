"""History of jobs: bounded documents, exits, and reports that survive the end of a lease."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.history.exits import exit_text, failed_rank, failure_text, log_tail
from fairlead.live.history.job_history import JobHistory, JobReports, LeaseRecord, merged
from fairlead.live.history.metric_points import Point
from fairlead.live.leases.renewal import Renewal


def record(lease: int, start_s: float | None = None) -> LeaseRecord:
    return LeaseRecord(
        lease=lease,
        nodes={"n": 1},
        accelerators={"v100": 1},
        started_at=float(lease),
        ended_at=lease + 1.0,
        ending="left",
        steps=1.0,
        start_s=start_s,
    )


def test_history_keeps_the_last_hundred_leases() -> None:
    history = merged(None, [JobReports(leases=[record(n) for n in range(150)])])
    assert sorted(history.leases) == list(range(50, 150))


def test_replayed_lease_does_not_replace_the_stored_one() -> None:
    stored = merged(None, [JobReports(leases=[record(7, start_s=1.5)])]).as_text()
    history = merged(stored, [JobReports(leases=[record(7)])])
    assert history.leases[7] == record(7, start_s=1.5)


def test_reports_stored_twice_count_once() -> None:
    points = [("loss", Point(float(i), float(i), 1.0 / (i + 1))) for i in range(50)]
    reports = JobReports(leases=[record(1)], points=points)
    once = merged(None, [reports])
    assert merged(once.as_text(), [reports]).as_text() == once.as_text()


def test_many_metrics_share_the_points_of_a_job() -> None:
    points = [(f"m{n}", Point(float(i), float(i), 1.0)) for i in range(600) for n in range(100)]
    history = merged(None, [JobReports(points=points)])
    assert len(history.metrics) == 100
    assert sum(len(metric.points()) for metric in history.metrics.values()) <= 20_000


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metrics": {"a": 1}, "leases": []}', "\ud800"])
def test_damaged_document_is_an_empty_history(text: str) -> None:
    history = JobHistory.from_text(text)
    assert (history.metrics, history.leases) == ({}, {})


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "0"), (3, "3"), (137, "137 (SIGKILL)"), (-9, "137 (SIGKILL)"), (255, "255")],
)
def test_exit_code_names_its_signal(code: int, text: str) -> None:
    assert exit_text(code) == text


def test_a_container_that_does_not_start_is_named() -> None:
    assert failure_text((125, -9, 125), in_container=False) == "it exited with 137 (SIGKILL), 125"
    assert failure_text((1,), in_container=True) == "it exited with 1"
    message = failure_text((125,), in_container=True)
    assert message.startswith("it exited with 125: its container could not be started; ")


def test_log_tail_is_bounded_and_escaped(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(1000)]
    (tmp_path / "5.1.log").write_text("\n".join([*lines, "\x1b[31mred"]))
    tail = log_tail(tmp_path, 5, failed_rank((0, 3)))
    assert (len(tail), tail[0], tail[-1]) == (20, "line 981", r"\x1b[31mred")
    (tmp_path / "6.0.log").write_text("x" * 100_000)
    assert sum(map(len, log_tail(tmp_path, 6, 0))) == 4096
    assert log_tail(tmp_path, 7, 0) == []


def test_metrics_leases_and_usage_survive_the_end_of_a_lease_and_a_restart(
    tmp_path: Path,
) -> None:
    async def first_server() -> str:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(retries=0, tenant="a")
            lease = await site.lease(job)
            for step in (1, 2, 3):
                metrics = {"loss": 1.0 / step, "broken": float("nan")}
                site.live.renew(lease, Renewal(rank=0, started=step, steps=step, metrics=metrics))
                await site.live.history.history(job)  # takes a sample
                sampled_at = site.live.clock.now()
                while site.live.clock.now() < sampled_at + 0.002:
                    await asyncio.sleep(0)
            await site.fail(job)
            return job

    async def second_server(job: str) -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            result = live.history.results.of(job)
            assert result.metrics == {"loss": 1.0 / 3, "broken": None}
            stored = await live.history.history(job)
            values = [point.value for point in stored.metrics["loss"].points()]
            assert values == pytest.approx([1.0, 0.5, 1.0 / 3])
            (ended,) = stored.leases.values()
            assert (ended.ending, [*ended.accelerators.values()]) == ("failed", [1])
            held_s = ended.ended_at - ended.started_at
            assert live.counters.of(job).device_s == pytest.approx(held_s)
            ((key, device_s),) = live.counters.usage.totals.items()
            assert [*key] == ["a", *ended.accelerators]
            assert device_s == pytest.approx(held_s)
            assert live.counters.totals.ended == {"failed": 1}

    job = asyncio.run(first_server())
    asyncio.run(second_server(job))
