"""The report as a page: complete, self-contained, the same every time."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from tests.unit.sim.test_compare import tiny

from fairlead.sim.compare import Outcome, compare
from fairlead.sim.report.page import report
from fairlead.sim.report.parameters import Asked, Generated

FIGURES = (
    "jct-distribution",
    "jct-by-load",
    "finish-time-fairness",
    "utilization",
    "tenant-shares",
    "devices-over-time",
)
ASKED = Asked(
    policies=("fifo", "isolated"),
    traces=Generated(
        kind="continuous-multiple",
        jobs=12,
        tenants=2,
        duration_factor=0.02,
        seeds=2,
        loads=(6.0, 12.0),
    ),
    cluster="v100=2/2,k80=4/2",
    speeds="gandiva-fair",
)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return compare(tiny())


@pytest.fixture(scope="module")
def page(outcomes: list[Outcome]) -> str:
    return report(tiny(), outcomes, ASKED)


def own_part(page: str) -> str:
    """Return the page without plotly.js, which names addresses that it does not load."""
    return page.replace(get_plotlyjs(), "")


def test_every_figure_is_there_with_every_policy(page: str) -> None:
    held = re.search(r"id='figures'>(.*?)</script>", page, re.DOTALL)
    assert held
    figures = json.loads(held[1])
    assert tuple(figures) == FIGURES
    for name in FIGURES:
        assert f"id='plot-{name}'" in page
        text = json.dumps(figures[name])
        buttons = page.partition(f"<figure id='{name}'")[2].partition("</figure>")[0]
        for policy in ASKED.policies:
            assert policy in text or policy in buttons
        for view in figures[name]["views"]:
            assert any(trace.get("x") for trace in view["data"]), f"{name} is empty"


def test_plotly_is_embedded_once_and_nothing_is_loaded(page: str) -> None:
    assert page.count(get_plotlyjs()) == 1
    mine = own_part(page)
    assert not re.search(r"https?://", mine)
    assert not re.search(r"<(script|img|iframe|link)[^>]*\b(src|href)\s*=", mine)
    assert "@import" not in mine
    assert "url(" not in mine
    assert "default-src 'none'" in mine
    assert len(page.encode()) < 8e6


def test_the_page_is_the_same_apart_from_measured_times(page: str) -> None:
    again = report(tiny(), compare(tiny()), ASKED)
    measured = re.compile(r"<span class='measured'>[\d.,]+</span>")
    assert measured.sub("", page) == measured.sub("", again)


def test_it_says_what_was_run_and_how_to_run_it_again(page: str) -> None:
    assert html.escape(ASKED.command()) in page
    assert "v100=2/2,k80=4/2" in page
    assert "12 jobs of 2 tenants" in page


def test_unfinished_jobs_are_told_in_summary_and_table(outcomes: list[Outcome]) -> None:
    assert "unfinished" not in report(tiny(), outcomes, ASKED).partition("<figure")[0]
    first = outcomes[0]
    ends = first.jobs.finished_at.copy()
    ends[:3] = np.nan
    left = replace(
        first,
        figures=replace(first.figures, unfinished=3),
        jobs=replace(first.jobs, finished_at=ends),
    )
    page = report(tiny(), [left, *outcomes[1:]], ASKED).partition("<figure")[0]
    assert "fifo left 3 of 48" in page
    assert "<th>unfinished jobs</th>" in page
    assert "<td class='bad'>3 of 24</td>" in page


def test_a_policy_none_of_whose_jobs_finish_does_not_break_the_page(
    outcomes: list[Outcome],
) -> None:
    never = []
    for o in outcomes:
        if o.run.policy == "isolated":
            figures = replace(
                o.figures,
                unfinished=12,
                avg_jct_s=None,
                median_jct_s=None,
                p99_jct_s=None,
                makespan_s=None,
                finish_time_fairness=None,
            )
            nan = np.full(12, np.nan)
            never.append(
                replace(o, figures=figures, jobs=replace(o.jobs, finished_at=nan, rho=nan))
            )
        else:
            never.append(o)
    page = report(tiny(), never, ASKED)
    assert "incomparably with isolated" in page
    assert "NaN" not in own_part(page)


def test_names_in_a_trace_cannot_break_out_of_the_page(outcomes: list[Outcome]) -> None:
    evil = "</script><script>alert(1)</script>"
    changed = []
    for outcome in outcomes:
        line = outcome.timeline
        if line is not None:
            line = replace(line, jobs=tuple(replace(job, tenant=evil) for job in line.jobs))
        changed.append(replace(outcome, timeline=line))
    assert evil not in own_part(report(tiny(), changed, ASKED))


def test_one_load_is_drawn_as_bars_without_a_choice_of_loads() -> None:
    comparison = tiny(loads=(6.0,))
    page = report(comparison, compare(comparison), ASKED)
    assert '"type":"bar"' in page
    assert "data-view='0' aria-pressed='false'>6 jobs/h" not in page


def test_a_mechanism_without_devices_is_said_to_have_no_timelines() -> None:
    comparison = tiny(policies=("isolated",), mechanism="ideal", seeds=(0,), loads=(6.0,))
    page = report(comparison, compare(comparison), ASKED)
    assert "no figures over time" in page
    assert "id='plot-utilization'" not in page


def test_the_command_keeps_policies_apart_that_a_comma_would_join() -> None:
    odd = replace(ASKED, policies=("max-min:agnostic", "unknown"))
    assert "--policies max-min:agnostic --policies unknown" in odd.command()
    assert "--policies fifo,isolated " in ASKED.command()
