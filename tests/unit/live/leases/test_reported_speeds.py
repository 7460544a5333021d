"""Speeds of a lease count once its job has warmed up."""

from collections.abc import Iterable

import pytest

from fairlead.live.leases.renewal import Renewal
from fairlead.live.leases.reported_speeds import Company, ReportedSpeeds

_WINDOW_S = 1.0


def renewals(step_s: Iterable[float], every_s: float) -> list[Renewal]:
    """Return the reports of the job library for steps of these lengths, as it measures them."""
    ends: list[float] = []
    for length in step_s:
        ends.append((ends[-1] if ends else 0.0) + length)
    made: list[Renewal] = []
    mark, before, speed, now = 0.0, 0, 0.0, every_s
    while now < ends[-1]:
        steps = sum(end <= now for end in ends)
        if steps:
            at = ends[steps - 1]
            if steps > before and (at - mark >= _WINDOW_S or not mark):
                speed = (steps - before) / (at - mark)
                if at - mark >= _WINDOW_S:
                    mark, before = at, steps
            made.append(
                Renewal(
                    rank=0,
                    started=steps,
                    steps=steps,
                    steps_per_s=speed,
                    first_step_s=now,
                    last_step_s=now - at,
                )
            )
        now += every_s
    return made


@pytest.mark.parametrize("every_s", [0.25, 1.25, 5.0])
def test_slow_first_steps_do_not_count(every_s: float) -> None:
    """The first ten steps take 0.2 s each, or the first one 1.5 s; all later ones 0.025 s."""
    for warm_up in ([0.2] * 10, [1.5]):
        speeds = ReportedSpeeds()
        steps = [*warm_up, *[0.025] * 2000]
        reports = renewals(steps, every_s)
        believed = []
        for renewal in reports:
            speeds.record(renewal, None)
            believed.append((renewal.first_step_s, speeds.measured, speeds.series))
        known = [(at, speed, series) for at, speed, series in believed if speed is not None]
        first_at, first, first_series = known[0]
        assert first_at is not None
        assert first_at <= max(4.5, 5 * every_s)
        later = [(speed, series) for _, speed, series in known if series != first_series]
        # A new series corrects an early belief, and is believed at once.
        final = later[0][0] if later else first
        assert final == pytest.approx(40.0, rel=0.05)


def test_first_belief_after_a_slow_first_step_is_of_steady_steps() -> None:
    speeds = ReportedSpeeds()
    for renewal in renewals([0.9, *[0.025] * 400], 0.25):
        speeds.record(renewal, None)
        assert speeds.measured is None or speeds.measured == pytest.approx(40.0, rel=0.05)
    assert speeds.measured is not None


def test_late_rise_is_a_change_that_most_reports_must_show() -> None:
    speeds = ReportedSpeeds()
    for steps in range(1, 31):
        speeds.record(Renewal(rank=0, started=steps, steps=steps, steps_per_s=10.0), None)
    before = speeds.series
    for steps, expected in zip(range(31, 34), (10.0, 10.0, 20.0), strict=True):
        speeds.record(Renewal(rank=0, started=steps, steps=steps, steps_per_s=20.0), None)
        assert speeds.measured == expected
    assert speeds.series == before


def test_other_company_begins_another_series() -> None:
    speeds = ReportedSpeeds()
    speeds.record(Renewal(rank=0, started=1, steps=1, steps_per_s=1.0), None)
    before = speeds.series
    speeds.record(Renewal(rank=0, started=2, steps=2, steps_per_s=1.0), Company((5,)))
    assert speeds.series == before + 1
    assert not speeds.current
