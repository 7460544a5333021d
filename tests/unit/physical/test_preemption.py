"""Costs of preemption from traces of steps, and shares of device time from leases."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.physical import overhead, shares
from benchmarks.physical.overhead import Step, overheads, read_trace

from fairlead.files import read_speeds

RECORDS = Path(overhead.__file__).with_name("measured")
STEP_S, LIBRARY_S, IDLE_S, SLOW_S = 0.1, 0.001, 0.2, 0.05
RENEWAL_S = 0.0005


def turns(models: list[str], steps: int, *, start_s: float) -> dict[str, list[Step]]:
    """Return the traces of models that take turns; the first step of each turn is slow."""
    traces: dict[str, list[Step]] = {}
    now = 0.0
    for model in models:
        now += IDLE_S if model in traces else start_s
        for number in range(steps):
            took_s = STEP_S - LIBRARY_S + (SLOW_S if number == 0 else 0.0)
            made = len(traces.setdefault(model, []))
            step = Step(now, now + took_s, now - LIBRARY_S, RENEWAL_S * made, made)
            traces[model].append(step)
            now += took_s + LIBRARY_S
    return traces


def test_the_cost_of_a_preemption_is_idle_time_and_slow_first_steps() -> None:
    rows = overheads(turns(["a", "b", "a", "b", "a"], 20, start_s=9.0))
    assert [(row.model, row.turns) for row in rows] == [("a", 2), ("b", 1)]
    for row in rows:
        assert row.idle_s == pytest.approx(IDLE_S + LIBRARY_S)
        assert row.slow_s == pytest.approx(SLOW_S)
        assert row.steps_per_s == pytest.approx(1 / STEP_S)
        assert row.preemption(60.0) == pytest.approx((IDLE_S + LIBRARY_S + SLOW_S) / 60.0)
        assert row.renewal(15.0) == pytest.approx(RENEWAL_S * 8 / 15.0)
        assert row.renewal(60.0) == pytest.approx(RENEWAL_S / 5.0)
        assert row.library_share == pytest.approx(LIBRARY_S / STEP_S, rel=0.1)
        assert row.within_limits


def test_a_missing_model_or_a_broken_limit_fails(capsys: pytest.CaptureFixture[str]) -> None:
    rows = overheads(turns(["a", "b", "a", "b"], 20, start_s=9.0))
    assert overhead.show(rows, ["a", "b"]) == 0
    assert overhead.show(rows, ["a", "b", "c"]) == 1
    assert "not measured: c" in capsys.readouterr().out
    slow = [overhead.Overhead("a", 3, 10.0, 0.31, 0.0, 0.0, 0.0)]
    assert overhead.show(slow, ["a"]) == 1


def test_the_recorded_costs_of_all_models_are_within_the_limits() -> None:
    records = [
        json.loads((RECORDS / name).read_text(encoding="utf-8"))
        for name in ("overhead.json", "overhead-gan-policy.json")
    ]
    more = [overhead.Overhead(**row) for row in records[1]["rows"]]
    assert overhead.show(more, ["policy", "gan"]) == 0
    rows = [overhead.Overhead(**row) for row in records[0]["rows"]]
    models = {workload.rpartition("-")[0] for workload in read_speeds("h200").workloads}
    assert overhead.show(rows, sorted(models)) == 0


def test_an_incomplete_line_of_a_trace_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    assert read_trace(path) == []
    path.write_text("1.0 1.5 0.9 0.25 3\n2.0 2.", encoding="ascii")
    assert read_trace(path) == [Step(1.0, 1.5, 0.9, 0.25, 3.0)]


def rotation(round_s: float) -> Iterator[tuple[str, float]]:
    """Yield job and start of each lease in three rounds of six jobs on four devices."""
    for number, running in enumerate(("abcd", "efab", "cdef")):
        for job in running:
            yield job, number * round_s


def test_six_jobs_on_four_devices_have_two_thirds_after_three_rounds() -> None:
    held: dict[str, list[shares.Held]] = {}
    for job, began_s in rotation(30.0):
        held.setdefault(job, []).append(shares.Held(began_s, began_s + 29.9, "resume"))
    assert shares.worst_error(shares.shares_until(held, 90.0), 4) == pytest.approx(0.1 / 30.0)
    assert shares.show(held, 4, 30.0, 3) == 0
    assert shares.worst_error(shares.shares_until(held, 60.0), 4) > 0.2
    assert shares.show(held, 4, 20.0, 3) == 1
