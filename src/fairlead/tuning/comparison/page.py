"""HTML report of a search comparison: one self-contained page."""

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from fairlead.sim.report.page import figure_html, page_end, page_head, setting_html, table_html
from fairlead.sim.report.style import Figure, Palette, View, axis, picture
from fairlead.tuning.comparison.runs import SearchComparison, SearchOutcome
from fairlead.tuning.comparison.tables import CaseRow, case_rows, cells

_POINTS = 200
"""instants at which the best value so far is drawn"""


def report(
    comparison: SearchComparison,
    outcomes: Sequence[SearchOutcome],
    descriptions: Mapping[str, str],
    command: str,
) -> str:
    """Return the page; equal outcomes give equal pages."""
    rows = case_rows(comparison, outcomes)
    shown = [cells(row) for row in rows]
    figures = [_times(comparison, rows), _best_so_far(comparison, outcomes)]
    parts = [
        page_head("Search strategies under scheduling policies"),
        f"<p class='lead'>{html.escape(_summary(comparison, rows))}</p>",
        setting_html(descriptions, command),
        "<h2>Key figures</h2>",
        "<p class='caption'>Minutes until a trial reports the target, with the ratio to the first"
        " row: means over the orders of the trials in which it was found, ± standard deviation."
        " Device hours of all trials, trials seen and trials stopped are those until then.</p>",
        table_html(list(shown[0]), [list(row.values()) for row in shown]),
        *map(figure_html, figures),
        page_end(figures),
    ]
    return "\n".join(parts)


def _summary(comparison: SearchComparison, rows: Sequence[CaseRow]) -> str:
    known = [row for row in rows if row.minutes is not None and row.reached == row.seeds]
    head = f"Time until a trial reports {comparison.curves.metric} {comparison.target:g}"
    if not known:
        return f"{head}: no strategy finds one with every order of the trials."
    best = min(known, key=lambda row: row.minutes or 0.0)
    worst = max(known, key=lambda row: row.minutes or 0.0)
    shortest, longest = best.minutes or 0.0, worst.minutes or 0.0
    return (
        f"{head}: {shortest:,.0f} minutes with {best.strategy} under {best.policy}, the shortest;"
        f" {longest:,.0f} minutes ({longest / shortest:.2f}×) with {worst.strategy} under"
        f" {worst.policy}, the longest."
    )


def _times(comparison: SearchComparison, rows: Sequence[CaseRow]) -> Figure:
    """Return the times to the target: a group of bars per strategy, a bar per policy."""
    palette = Palette.of(comparison.policies, ())
    bars = []
    for policy in comparison.policies:
        own = [row for row in rows if row.policy == policy]
        deviations = [row.minutes_deviation or 0.0 for row in own]
        bars.append(
            go.Bar(
                name=policy,
                x=[row.strategy for row in own],
                y=[row.minutes for row in own],
                error_y={"type": "data", "array": deviations, "visible": any(deviations)},
                marker={"color": palette.policies[policy]["color"]},
                hovertemplate="%{x}: %{y:.1f} min<extra>" + html.escape(policy) + "</extra>",
            )
        )
    drawn = picture(
        bars,
        height=420,
        barmode="group",
        xaxis=axis("strategy", type="category", showgrid=False),
        yaxis=axis("minutes to the target", rangemode="tozero"),
    )
    caption = "Mean over the orders of the trials, ± standard deviation. Lower is better."
    return Figure("times", "Time to the target", caption, (View("all", drawn),))


def _best_so_far(comparison: SearchComparison, outcomes: Sequence[SearchOutcome]) -> Figure:
    """Return the best value so far against time, one view per policy."""
    palette = Palette.of(comparison.strategies, ())
    views = []
    for policy in comparison.policies:
        lines = []
        for strategy in comparison.strategies:
            own = [o for o in outcomes if (o.run.strategy, o.run.policy) == (strategy, policy)]
            minutes, value = _median_best(own)
            lines.append(
                go.Scatter(
                    name=strategy,
                    x=minutes,
                    y=value,
                    line={**palette.policies[strategy], "shape": "hv"},
                    hovertemplate="%{y:.4g} after %{x:.1f} min<extra>" + strategy + "</extra>",
                )
            )
        drawn = picture(
            lines,
            height=420,
            xaxis=axis("time (min, log scale)", type="log"),
            yaxis=axis(f"best {comparison.curves.metric}"),
        )
        drawn.add_hline(y=comparison.target, line={"color": "#888888", "dash": "dot"})
        views.append(View(policy, drawn))
    caption = (
        "Median over the orders of the trials of the best value so far. The dotted line is the"
        " target; a curve ends with the last search."
    )
    return Figure("best-so-far", "Best value so far", caption, tuple(views))


def _median_best(outcomes: Sequence[SearchOutcome]) -> tuple[list[float], list[float]]:
    """Return minutes, and the median of the best values by then."""
    begins = min(o.best[0][0] for o in outcomes)
    ends = max(o.best[-1][0] for o in outcomes)
    instants = np.geomspace(max(begins, 1.0), max(ends, begins, 1.0), _POINTS)
    median = []
    for instant in instants:
        known = [[v for at, v in o.best if at <= instant * (1.0 + 1e-9)] for o in outcomes]
        median.append(float(np.median([values[-1] if values else math.nan for values in known])))
    return (instants / 60.0).round(3).tolist(), [round(value, 6) for value in median]
