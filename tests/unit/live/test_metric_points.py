"""History of one metric: bounded, even, with its extremes."""

import json
import random
from itertools import pairwise

import pytest

from fairlead.live.history.metric_points import MetricPoints, Point


def reported(values: list[float], limit: int) -> MetricPoints:
    metric = MetricPoints()
    for i, value in enumerate(values):
        metric.add(Point(float(i), float(10 * i), value), limit)
    return metric


def test_short_history_keeps_every_report() -> None:
    values = [3.0, 1.0, 2.0, 2.0, 5.0]
    points = reported(values, 100).points()
    assert [point.value for point in points] == values
    assert [point.steps for point in points] == [0.0, 10.0, 20.0, 30.0, 40.0]


@pytest.mark.parametrize("reports", [101, 1000, 12_345])
def test_long_history_keeps_first_last_least_and_greatest_within_its_limit(reports: int) -> None:
    rng = random.Random(reports)
    values = [rng.gauss(0.0, 1.0) for _ in range(reports)]
    metric = reported(values, 100)
    points = metric.points()
    assert 40 <= len(points) <= 100
    assert [points[0].at, points[-1].at] == [0.0, reports - 1.0]
    kept = [point.value for point in points]
    assert (min(kept), max(kept)) == (min(values), max(values))
    # Even: no gap is wider than two groups of reports.
    gaps = [after.at - before.at for before, after in pairwise(points)]
    assert max(gaps) <= 4 * metric.stride


def test_repeated_report_changes_nothing() -> None:
    metric = reported([1.0, 2.0], 100)
    metric.add(Point(1.0, 10.0, 9.0), 100)
    assert [point.value for point in metric.points()] == [1.0, 2.0]


def test_saved_history_continues_like_the_original() -> None:
    values = [float(i % 17) for i in range(777)]
    whole = reported(values, 50)
    part = reported(values[:333], 50)
    part = MetricPoints.from_json(json.loads(json.dumps(part.as_json())))
    for i, value in enumerate(values[333:], 333):
        part.add(Point(float(i), float(10 * i), value), 50)
    assert part.points() == whole.points()
