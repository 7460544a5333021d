"""The page of a search: its figures come from the reports of its trials."""

import json
from dataclasses import replace

import pytest

from fairlead.model.submission.search import Choices, Range, Search, Value
from fairlead.tuning.report.figures import MAX_TRIALS, figures_of
from fairlead.tuning.report.page import search_page
from fairlead.tuning.report.record import SearchRecord, TimedReport, TrialRecord

SEARCH = Search(
    name="a <script><b>",
    space={"lr": Range(1e-4, 1.0, log=True), "optimizer": Choices(("sgd", "<i>adam"))},
    metric="accuracy",
    trials=3,
    target=0.9,
)


def trial(number: int, values: list[float], lr: float = 0.01) -> TrialRecord:
    reports = [TimedReport(60.0 * i + number, 10.0 * (i + 1), v) for i, v in enumerate(values)]
    point: dict[str, Value] = {"lr": lr, "optimizer": "<i>adam"}
    return TrialRecord(number, point, "finished", max(values, default=None), 2.0, reports)


RECORD = SearchRecord(
    SEARCH, "", 6.0, [trial(0, [0.1, 0.5, 0.4, 0.6]), trial(1, [0.2, 0.3]), trial(2, [])]
)


def test_improvements_count_device_hours_in_proportion_to_steps() -> None:
    at, hours, trials, values = zip(*RECORD.improvements(), strict=True)
    assert at == (0.0, 1.0, 60.0, 180.0)
    assert hours == pytest.approx((0.5, 1.5, 2.0, 4.0))
    assert [t.number for t in trials] == [0, 1, 0, 0]
    assert values == (0.1, 0.2, 0.5, 0.6)
    lost = replace(RECORD, search=replace(SEARCH, direction="minimize", target=None))
    assert [value for *_, value in lost.improvements()] == [0.1]
    assert [t.number for t in RECORD.ranked] == [0, 1]


def test_the_page_has_all_figures_and_escapes_names() -> None:
    page = search_page(RECORD)
    assert page == search_page(RECORD)
    assert "a <script>" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "3 trials, 6.00 device hours; the best accuracy is 0.6, of trial 0" in page
    figures = json.loads(page.split("id='figures'>")[1].split("</script>")[0])
    assert list(figures) == ["best-so-far", "curves", "parallel-coordinates"]
    lines = figures["parallel-coordinates"]["views"][0]["data"]
    # A hundredth is in the middle between 1e-4 and 1; the best trial is drawn last, at the top.
    assert lines[-1]["y"] == pytest.approx([0.5, 1.0, 1.0])
    assert lines[0]["y"] == pytest.approx([0.5, 1.0, 0.0])


def test_a_page_shows_the_best_trials_of_many_and_none_without_reports() -> None:
    many = [trial(i, [i / 1000.0]) for i in range(MAX_TRIALS + 5)]
    figures = figures_of(replace(RECORD, trials=many))
    assert figures[1].note == f"The best {MAX_TRIALS} of {MAX_TRIALS + 5} trials with reports."
    assert len(figures[1].views[0].picture.data) == MAX_TRIALS
    silent = replace(RECORD, trials=[trial(0, [])])
    assert figures_of(silent) == []
    assert "no trial has reported accuracy" in search_page(silent)
    removed = replace(RECORD, trials=[replace(trial(0, [0.5]), reports=())])  # as by retention
    assert figures_of(removed) == []
    assert "the best accuracy is 0.5, of trial 0" in search_page(removed)
