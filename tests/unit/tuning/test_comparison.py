"""Search strategies under scheduling policies, in the simulator of the scheduler itself."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlead.files import parse_cluster
from fairlead.files.parsing.text import SourceText
from fairlead.files.recorded_curves import RecordedCurves, parse_curves
from fairlead.model.errors import InputError, UsageError
from fairlead.model.events import JobCancelled, JobChanged, JobReleased
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.tuning.comparison.page import report
from fairlead.tuning.comparison.reviewer import SearchReviewer
from fairlead.tuning.comparison.runs import (
    SearchComparison,
    SearchOutcome,
    SearchRun,
    check,
    compare_searches,
    run_search,
    trial_speeds,
)
from fairlead.tuning.comparison.tables import case_rows, results_csv
from fairlead.tuning.strategies.base import Decision, LearningCurve

REPORTS, TRIALS, TARGET = 20, 24, 0.9
NO_SPEEDS = SpeedTable({})


def curves(direction: str = "maximize") -> RecordedCurves:
    """Return trials of which one reaches the target, with its last report but one."""
    progress = np.arange(1, REPORTS + 1) / REPORTS
    tops = np.linspace(0.4, 0.7, TRIALS)
    values = tops[:, None] - 0.1 * progress**-0.4
    values[TRIALS // 2] = 0.93 - 0.03 * (progress / 0.95) ** -0.7
    if direction == "minimize":
        return RecordedCurves("loss", -values, [{}] * TRIALS, "minimize", target=-TARGET)
    return RecordedCurves("accuracy", values, [{}] * TRIALS, target=TARGET)


def comparison(recorded: RecordedCurves, **changes: Any) -> SearchComparison:
    cluster = parse_cluster("v100=2")
    made = SearchComparison(
        curves=recorded,
        target=TARGET * recorded.sign,
        strategies=("feedback", "none"),
        policies=("max-min", "fifo"),
        cluster=cluster,
        speeds=trial_speeds(recorded, cluster, NO_SPEEDS),
        seeds=2,
        round_s=60.0,
    )
    return replace(made, **changes)


def test_trials_of_a_fifo_queue_run_to_their_ends_one_after_the_other() -> None:
    order = np.random.default_rng(0).permutation(TRIALS).tolist()
    place = order.index(TRIALS // 2)
    outcome = run_search(comparison(curves()), SearchRun("none", "fifo", 0))
    # Two devices, a minute per report; the target comes with the last report but one.
    assert outcome.found_s == (place // 2 * REPORTS + REPORTS - 1) * 60.0
    assert outcome.stopped == 0
    assert outcome.seen == place // 2 * 2 + 2
    assert outcome.device_hours == pytest.approx(2 * outcome.found_s / 3600.0)
    assert outcome.best[-1][0] == outcome.found_s
    assert outcome.best[-1][1] >= TARGET


class FixedStrategy:
    """Stops trial 0 and lowers the weight of trial 1."""

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        live = [curve.trial for curve in curves if not curve.has_ended]
        return Decision(frozenset({0} & set(live)), {t: 0.25 for t in (1,) if t in live})


def test_a_review_stops_trials_changes_weights_and_releases_the_next() -> None:
    jobs = [Job(id=f"t{i}", workload="trial", total_steps=2.0) for i in range(4)]
    values = np.arange(8.0).reshape(4, 2)
    reviewer = SearchReviewer(
        values, jobs, FixedStrategy(), 7.0, parallel=2, period_s=10.0, limit_s=1e6
    )
    assert reviewer.held == {"t2", "t3"}
    assert reviewer.review(0.0, np.zeros(4)) == []
    assert reviewer.review(60.0, np.array([1.0, 1.0, 0.0, 0.0])) == [
        JobCancelled(60.0, "t0"),
        JobChanged(60.0, replace(jobs[1], weight=0.25)),
        JobReleased(60.0, "t2"),
    ]
    assert reviewer.review(120.0, np.array([1.0, 2.0, 0.5, 0.0])) == [JobReleased(120.0, "t3")]
    # A sum of parts of a step may lack a rounding error.
    assert reviewer.review(300.0, np.array([1.0, 2.0, 2.0, 2.0 - 1e-9])) is None
    assert (reviewer.found_at, reviewer.seen, reviewer.stopped) == (300.0, 4, 1)
    best_at = [(60.0, 0.0), (60.0, 2.0), (120.0, 3.0), (300.0, 5.0), (300.0, 7.0)]
    assert reviewer.best_at == best_at


@pytest.fixture(scope="module")
def outcomes() -> list[SearchOutcome]:
    return compare_searches(comparison(curves()))


def test_feedback_finds_the_target_sooner_where_the_policy_honours_weights(
    outcomes: list[SearchOutcome],
) -> None:
    rows = {(row.strategy, row.policy): row for row in case_rows(comparison(curves()), outcomes)}
    assert all(row.reached == 2 for row in rows.values())
    assert rows["feedback", "max-min"].ratio == 1.0
    for other in (("none", "max-min"), ("none", "fifo")):
        assert (rows[other].ratio or 0.0) > 1.5
    # No more trials at a time than devices: nothing to slice.
    assert rows["none", "max-min"].minutes == rows["none", "fifo"].minutes
    # All trials are submitted at once, and a FIFO queue gives none of them a second device.
    assert (rows["feedback", "max-min"].seen or 0.0) > (rows["feedback", "fifo"].seen or 0.0)


def test_a_metric_to_minimize_gives_the_same_searches(outcomes: list[SearchOutcome]) -> None:
    mirrored = compare_searches(comparison(curves("minimize"), seeds=1))
    expected = [outcome for outcome in outcomes if outcome.run.seed == 0]
    assert [o.found_s for o in mirrored] == [o.found_s for o in expected]
    assert mirrored[0].best[-1][1] == -expected[0].best[-1][1]


def test_stopped_trials_make_room_for_the_next_and_a_search_may_find_nothing() -> None:
    recorded = curves()
    weak = replace(recorded, values=np.delete(recorded.values, TRIALS // 2, axis=0))
    wanted = comparison(weak, strategies=("asha",), policies=("fifo",))
    outcome = run_search(wanted, SearchRun("asha", "fifo", 0))
    assert math.isinf(outcome.found_s)
    assert outcome.seen == TRIALS - 1
    assert 0 < outcome.stopped < TRIALS - 1
    assert outcome.device_hours < 0.6 * (TRIALS - 1) * REPORTS / 60.0
    row = case_rows(replace(wanted, seeds=1), [outcome])[0]
    assert (row.reached, row.minutes, row.ratio) == (0, None, None)
    with pytest.raises(UsageError, match=r"--target: 0\.9 is reached by no trial: expected at mo"):
        check(wanted)


def test_the_report_shows_every_case_and_is_deterministic(outcomes: list[SearchOutcome]) -> None:
    wanted = comparison(curves())
    page = report(wanted, outcomes, {"search": "<i>.json"}, "fairlead compare --search '<i>.json'")
    assert page == report(
        wanted, outcomes, {"search": "<i>.json"}, "fairlead compare --search '<i>.json'"
    )
    assert "<i>" not in page
    assert page.count("2 of 2") == 4
    figures = json.loads(page.split("id='figures'>")[1].split("</script>")[0])
    assert list(figures) == ["times", "best-so-far"]
    assert len(figures["best-so-far"]["views"]) == 2
    lines = results_csv(outcomes).splitlines()
    assert lines[0] == "strategy,policy,seed,found_s,device_hours,seen,stopped"
    assert len(lines) == 1 + 8


def test_relative_speeds_are_those_of_the_workload() -> None:
    cluster = parse_cluster("v100=1,k80=1")
    table = SpeedTable({SpeedKey("m", 1, "v100"): 8.0, SpeedKey("m", 1, "k80"): 2.0})
    speeds = trial_speeds(replace(curves(), workload="m", report_s=10.0), cluster, table)
    assert sorted(speeds.steps_per_s.values()) == [0.025, 0.1]
    with pytest.raises(InputError, match="workload"):
        trial_speeds(replace(curves(), workload="n"), cluster, table)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"metric": None}, "metric: missing"),
        ({"direction": "up"}, "direction: not allowed: 'up': expected maximize or minimize"),
        ({"report_s": 0}, "report_s: not allowed: 0.0: expected above 0"),
        ({"trials": []}, "trials: not allowed: 0: expected 1 to 10,000 trials"),
        ({"trials": [{"values": [1, "x"]}]}, r"trials\[0\]: not a number"),
        ({"trials": [{"values": []}]}, r"trials\[0\]: 0 values, others have 0: expected trials"),
        (
            {"trials": [{"values": [1, 2]}, {"values": [1]}]},
            r"trials\[1\]: 1 values, others have 2: expected trials that ran to their ends",
        ),
        ({"trials": [{"values": [1], "parameters": {"lr": []}}]}, r"parameters: lr: a list"),
        ({"trails": []}, "did you mean 'trials'"),
    ],
)
def test_curves_that_cannot_be_used_are_refused(change: dict[str, Any], problem: str) -> None:
    good = {"metric": "accuracy", "trials": [{"values": [0.5]}]}
    assert parse_curves(SourceText("c.json", json.dumps(good))).values.tolist() == [[0.5]]
    with pytest.raises(InputError, match=r"^c\.json: .*" + problem):
        parse_curves(SourceText("c.json", json.dumps(good | change)))
