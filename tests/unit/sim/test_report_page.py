"""The report page is complete, self-contained and deterministic."""

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
from fairlead.sim.report.parameters import ComparisonOptions, GeneratedTraces

FIGURES = (
    "jct-distribution",
    "jct-by-load",
    "finish-time-fairness",
    "utilization",
    "tenant-shares",
    "devices-over-time",
)
OPTIONS = ComparisonOptions(
    policies=("fifo", "isolated"),
    traces=GeneratedTraces(
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
    return report(tiny(), outcomes, OPTIONS)


def own_part(page: str) -> str:
    """Return the page without plotly.js, which contains URLs that it does not load."""
    return page.replace(get_plotlyjs(), "")


def test_page_has_every_figure_with_every_policy(page: str) -> None:
    data = re.search(r"id='figures'>(.*?)</script>", page, re.DOTALL)
    assert data
    figures = json.loads(data[1])
    assert tuple(figures) == FIGURES
    for name in FIGURES:
        assert f"id='plot-{name}'" in page
        text = json.dumps(figures[name])
        buttons = page.partition(f"<figure id='{name}'")[2].partition("</figure>")[0]
        for policy in OPTIONS.policies:
            assert policy in text or policy in buttons
        for view in figures[name]["views"]:
            assert any(trace.get("x") for trace in view["data"]), f"{name} is empty"


def test_page_embeds_plotly_once_and_loads_nothing(page: str) -> None:
    assert page.count(get_plotlyjs()) == 1
    own = own_part(page)
    assert not re.search(r"https?://", own)
    assert not re.search(r"<(script|img|iframe|link)[^>]*\b(src|href)\s*=", own)
    assert "@import" not in own
    assert "url(" not in own
    assert "default-src 'none'" in own
    assert len(page.encode()) < 8e6


def test_page_is_deterministic_apart_from_measured_times(page: str) -> None:
    again = report(tiny(), compare(tiny()), OPTIONS)
    measured = re.compile(r"<span class='measured'>[\d.,]+</span>")
    assert measured.sub("", page) == measured.sub("", again)


def test_page_shows_the_parameters_and_the_command(page: str) -> None:
    assert html.escape(OPTIONS.command()) in page
    assert "v100=2/2,k80=4/2" in page
    assert "12 jobs of 2 tenants" in page


def test_summary_and_table_count_unfinished_jobs(outcomes: list[Outcome]) -> None:
    assert "unfinished" not in report(tiny(), outcomes, OPTIONS).partition("<figure")[0]
    first = outcomes[0]
    ends = first.jobs.finished_at.copy()
    ends[:3] = np.nan
    left = replace(
        first,
        figures=replace(first.figures, unfinished=3),
        jobs=replace(first.jobs, finished_at=ends),
    )
    page = report(tiny(), [left, *outcomes[1:]], OPTIONS).partition("<figure")[0]
    assert "fifo left 3 of 48" in page
    assert "<th>unfinished jobs</th>" in page
    assert "<td class='bad'>3 of 24</td>" in page


def test_page_works_if_no_job_of_a_policy_finishes(
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
    page = report(tiny(), never, OPTIONS)
    assert "incomparably with isolated" in page
    assert "NaN" not in own_part(page)


def test_names_in_a_trace_are_escaped(outcomes: list[Outcome]) -> None:
    evil = "</script><script>alert(1)</script>"
    changed = []
    for outcome in outcomes:
        line = outcome.timeline
        if line is not None:
            line = replace(line, jobs=tuple(replace(job, tenant=evil) for job in line.jobs))
        changed.append(replace(outcome, timeline=line))
    assert evil not in own_part(report(tiny(), changed, OPTIONS))


def test_single_load_is_drawn_as_bars_without_load_buttons() -> None:
    comparison = tiny(loads=(6.0,))
    page = report(comparison, compare(comparison), OPTIONS)
    assert '"type":"bar"' in page
    assert "data-view='0' aria-pressed='false'>6 jobs/h" not in page


def test_fluid_mechanism_has_a_note_instead_of_timelines() -> None:
    comparison = tiny(policies=("isolated",), mechanism="ideal", seeds=(0,), loads=(6.0,))
    page = report(comparison, compare(comparison), OPTIONS)
    assert "No figures over time" in page
    assert "id='plot-utilization'" not in page


def test_command_repeats_policies_if_a_comma_would_be_ambiguous() -> None:
    odd = replace(OPTIONS, policies=("max-min:agnostic", "unknown"))
    assert "--policies max-min:agnostic --policies unknown" in odd.command()
    assert "--policies fifo,isolated " in OPTIONS.command()
