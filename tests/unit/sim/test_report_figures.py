"""Data of a report's figures and means."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sim.test_compare import tiny

from fairlead.model.arrays import FloatArray
from fairlead.model.job import Job
from fairlead.sim.compare import Outcome, compare
from fairlead.sim.occupancy import Timeline
from fairlead.sim.report import completion, timeline, utilization
from fairlead.sim.report.buckets import MAX_BUCKETS, edges, entitled, held_s
from fairlead.sim.report.means import AVERAGE_JCT, KEY_FIGURES, key_rows, mean
from fairlead.sim.report.style import Palette
from fairlead.sim.report.summary import summary


def job(number: int, tenant: str, arrival_at: float, weight: float = 1.0) -> Job:
    return Job(
        id=str(number),
        workload="w",
        total_steps=1.0,
        tenant=tenant,
        arrival_at=arrival_at,
        weight=weight,
    )


def held(
    *rows: tuple[int, int, float, float], jobs: tuple[Job, ...], ends: list[float]
) -> Timeline:
    columns = np.array(rows, dtype=float).reshape(-1, 4).T
    finished: FloatArray = np.array(ends)
    return Timeline(
        columns[0].astype(np.int64),
        columns[1].astype(np.int64),
        columns[2],
        columns[3],
        jobs,
        finished,
    )


TWO = (job(0, "a", 0.0), job(1, "b", 3600.0, weight=3.0))


def test_buckets_cover_the_time_and_are_limited_in_number() -> None:
    for hours in (0.01, 1, 30, 700, 1e5):
        bounds = edges(100.0, 100.0 + hours * 3600)
        assert (bounds[0], bounds[-1]) == (100.0, pytest.approx(100.0 + hours * 3600))
        assert 1 <= len(bounds) - 1 <= MAX_BUCKETS
        assert (np.diff(bounds) > 0).all()


def test_device_time_is_counted_in_the_buckets_in_which_it_was_held() -> None:
    line = held((0, 0, 0, 5400), (1, 1, 3600, 7200), jobs=TWO, ends=[5400.0, 7200.0])
    seconds = held_s(line, line.job, 2, np.array([0.0, 3600.0, 7200.0]))
    assert seconds.tolist() == [[3600, 0], [1800, 3600]]


def test_entitlement_is_the_fraction_of_weights_of_unfinished_jobs() -> None:
    line = held((0, 0, 0, 7200), (1, 1, 3600, 9000), jobs=TWO, ends=[7200.0, 9000.0])
    share = entitled(line, ["a", "b"], np.array([0.0, 3600.0, 7200.0, 9000.0, 10800.0]))
    assert share[:3].tolist() == [[1, 0], [0.25, 0.75], [0, 1]]
    assert np.isnan(share[3]).all(), "no unfinished jobs"


def test_means_have_a_sample_deviation_and_a_ratio_to_the_first_policy() -> None:
    outcomes = compare(tiny(loads=(6.0,)))
    fifo = [o.figures.avg_jct_s or 0.0 for o in outcomes if o.run.policy == "fifo"]
    other = [o.figures.avg_jct_s or 0.0 for o in outcomes if o.run.policy == "isolated"]
    first, second = key_rows(outcomes, 6.0)
    place = KEY_FIGURES.index(AVERAGE_JCT)
    assert first.means[place].value == pytest.approx(np.mean(fifo) / 3600)
    assert first.means[place].deviation == pytest.approx(np.std(fifo, ddof=1) / 3600)
    assert second.ratios[place] == pytest.approx(np.mean(other) / np.mean(fifo))
    assert mean(outcomes[:1], AVERAGE_JCT).deviation is None


def slower(outcome: Outcome, factor: float) -> Outcome:
    figures = outcome.figures
    return replace(outcome, figures=replace(figures, avg_jct_s=(figures.avg_jct_s or 0) * factor))


def test_summary_names_the_faster_policy_its_ratio_and_the_seeds() -> None:
    comparison = tiny(loads=(6.0,))
    outcomes = compare(comparison)
    same = {o.run.seed: o for o in outcomes if o.run.policy == "fifo"}
    twice = [
        o if o.run.policy == "fifo" else replace(slower(same[o.run.seed], 2.0), run=o.run)
        for o in outcomes
    ]
    text = summary(comparison, twice)
    assert "At 6 jobs/h, fifo completes jobs 2.00× faster on average than isolated" in text
    assert "faster in 2 of 2 seeds" in text
    half = [o if o.run.policy == "fifo" else slower(o, 0.25) for o in twice]
    assert "2.00× slower on average than isolated" in summary(comparison, half)
    equal = [o if o.run.policy == "fifo" else slower(o, 0.5) for o in twice]
    assert "about as fast as isolated" in summary(comparison, equal)


def test_curve_stays_below_100_per_cent_with_unfinished_jobs() -> None:
    comparison = tiny(policies=("fifo",), seeds=(0,), loads=(6.0,))
    (whole,) = compare(comparison)
    ends = whole.jobs.finished_at.copy()
    ends[:3] = np.nan
    cut = replace(whole, jobs=replace(whole.jobs, finished_at=ends))
    palette = Palette.of(comparison.policies, [])
    figure = completion.jct_distribution(comparison, [cut], palette)
    (curve,) = figure.views[0].picture.data
    assert max(curve.y) == pytest.approx(100 * 9 / 12, abs=0.01)


def test_policy_has_the_same_colour_in_every_figure() -> None:
    comparison = tiny()
    outcomes = compare(comparison)
    lines = {o.run.policy: o.timeline for o in outcomes if o.timeline}
    palette = Palette.of(comparison.policies, [])
    figures = [
        completion.jct_distribution(comparison, outcomes, palette),
        completion.jct_by_load(comparison, outcomes, palette),
        completion.fairness_distribution(comparison, outcomes, palette),
        utilization.utilization(lines, comparison.cluster, palette, ""),
    ]
    seen = {
        (trace.name, trace.line.color)
        for figure in figures
        for view in figure.views
        for trace in view.picture.data
    }
    assert len(seen) == 2


def test_device_bars_merge_renewed_leases_and_note_omitted_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(0, 0, 0, 3600), (0, 0, 3600, 7200), (1, 0, 7200, 9000), (1, 1, 0, 9000)]
    line = held(*rows, jobs=TWO, ends=[7200.0, 9000.0])
    cluster = tiny().cluster
    palette = Palette.of(["p"], ["a", "b"])
    whole = timeline.devices_over_time({"p": line}, cluster, palette, "", ["a", "b"])
    bars = [t for t in whole.views[0].picture.data if t.base is not None]
    assert sum(len(t.y) for t in bars) == 3
    assert whole.note == ""
    monkeypatch.setattr(timeline, "MAX_BARS", 2)
    cut = timeline.devices_over_time({"p": line}, cluster, palette, "", ["a", "b"])
    assert "The first 2.0 h of 2.5 h, to keep the file small" in cut.note
    assert max(b + x for t in cut.views[0].picture.data if t.base is not None
               for b, x in zip(t.base, t.x, strict=True)) <= 2.0  # fmt: skip
