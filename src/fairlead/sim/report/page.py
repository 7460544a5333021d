"""HTML report of a comparison: one self-contained page."""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.sim.compare import Comparison, Outcome
from fairlead.sim.report import completion, timeline, utilization
from fairlead.sim.report.means import KEY_FIGURES, Row, key_rows, load_text
from fairlead.sim.report.parameters import ComparisonOptions, restore_cost_text
from fairlead.sim.report.style import Figure, Palette
from fairlead.sim.report.summary import join_with_and, summary
from fairlead.version import __version__

MAX_SKIPPED = 200
"""skipped jobs that the page lists"""
_NO_TIMELINES = (
    "<p class='note'>No figures over time: this mechanism gives jobs fractions of devices, not"
    " whole devices.</p>"
)


def report(comparison: Comparison, outcomes: Sequence[Outcome], options: ComparisonOptions) -> str:
    """Return the page; equal outcomes give equal pages, apart from measured times."""
    figures = [_with_restore_cost(each, comparison) for each in figures_of(comparison, outcomes)]
    parts = [
        page_head(_title(comparison.policies)),
        f"<p class='lead'>{html.escape(summary(comparison, outcomes))}</p>",
        setting_html(options.descriptions(), options.command()),
        _skipped(comparison.skipped),
        "<h2>Key figures</h2>",
        _tables(comparison, outcomes),
        *map(figure_html, figures),
        "" if any(o.timeline for o in outcomes) else _NO_TIMELINES,
        page_end(figures),
    ]
    return "\n".join(parts)


def figures_of(comparison: Comparison, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Return the figures in reading order."""
    timelines = {o.run.policy: o.timeline for o in outcomes if o.timeline is not None}
    tenants = utilization.tenants_of(timelines)
    palette = Palette.of(comparison.policies, tenants)
    figures = [
        completion.jct_distribution(comparison, outcomes, palette),
        completion.jct_by_load(comparison, outcomes, palette),
        completion.fairness_distribution(comparison, outcomes, palette),
    ]
    if timelines:
        shown_run = _shown_run(comparison)
        cluster = comparison.cluster
        figures += [
            utilization.utilization(timelines, cluster, palette, shown_run),
            utilization.tenant_shares(timelines, palette, shown_run, tenants),
            timeline.devices_over_time(timelines, cluster, palette, shown_run, tenants),
        ]
    return figures


def _with_restore_cost(figure: Figure, comparison: Comparison) -> Figure:
    """Return a figure whose caption states the cost of a restart."""
    return replace(figure, caption=f"{figure.caption} {_restore_cost(comparison)}")


def _restore_cost(comparison: Comparison) -> str:
    return f"Each restart costs a job {restore_cost_text(comparison.restore_cost_s)}."


def _shown_run(comparison: Comparison) -> str:
    if comparison.recipe is None:
        return ""
    load = comparison.chosen_load
    at = "" if load is None else f" at {load_text(load)}"
    return f"The run with seed {comparison.seeds[0]}{at}."


def _title(policies: Sequence[str]) -> str:
    first, *others = policies
    if not others:
        return f"Simulation of {html.escape(first)}"
    if len(others) > 3:
        return f"Comparison of {len(policies)} policies"
    return html.escape(f"{first} against {join_with_and(others)}")


def page_head(title: str) -> str:
    """Return the opening HTML of a Fairlead page, up to its heading."""
    # The browser enforces by this policy that the page loads nothing from elsewhere.
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none';"
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title} – Fairlead</title><style>{resource('page.css')}</style></head>"
        f"<body><main><h1>{title}</h1>"
    )


def page_end(figures: Sequence[Figure]) -> str:
    """Return the closing HTML of a Fairlead page, with the scripts that draw its figures."""
    parts = [
        f"<footer>Made by fairlead {__version__}.</footer></main>",
        f"<script>{get_plotlyjs()}</script>",
        f"<script type='application/json' id='figures'>{figures_json(figures)}</script>",
        f"<script>{resource('page.js')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def setting_html(descriptions: Mapping[str, str], command: str) -> str:
    """Return the section with the parameters and the command that made a page."""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>"
        for name, text in descriptions.items()
    )
    return (
        f"<section class='setting'><h2>Parameters</h2><dl>{rows}</dl><p>Command:</p>"
        f"<pre><code>{html.escape(command)}</code></pre></section>"
    )


def _skipped(jobs: Sequence[SkippedJob]) -> str:
    """Return the section on jobs that can never run, empty if none was skipped."""
    if not jobs:
        return ""
    shown = jobs[:MAX_SKIPPED]
    rows = "".join(
        f"<tr><th>{html.escape(job.id)}</th><td>{html.escape(job.reason)}</td></tr>"
        for job in shown
    )
    left = len(jobs) - len(shown)
    more = f"<p class='note'>{left} more are not listed.</p>" if left else ""
    return (
        f"<section id='skipped'><h2>Skipped jobs: {len(jobs)}</h2><p>These jobs of the trace can"
        " never run on this cluster; no figure counts them.</p><div class='wide'><table><thead>"
        f"<tr><th>job</th><th>reason</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
        "</section>"
    )


def _tables(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    several = len(comparison.seeds) > 1
    averaging = "Mean ± standard deviation over all seeds" if several else "One run per policy"
    caption = (
        f"{averaging}, with the ratio to the first policy below each figure. JCT: job completion"
        " time, from arrival to finish. Makespan: from the first arrival to the last finish. ρ:"
        " finish-time fairness; below 1 is better than an exclusive 1/n of the cluster. CPU: time"
        f" of the whole simulation, as measured. {_restore_cost(comparison)}"
    )
    tables = [_table(load, key_rows(outcomes, load)) for load in comparison.loads]
    return f"<p class='caption'>{caption}</p>" + "".join(tables)


def _table(load: float | None, rows: Sequence[Row]) -> str:
    unfinished = any(row.unfinished for row in rows)
    columns = [*(quantity.label for quantity in KEY_FIGURES), "CPU (s)"]
    if unfinished:
        columns.append("unfinished jobs")
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(_row(row, unfinished, base=i == 0) for i, row in enumerate(rows))
    caption = "" if load is None else f"<caption>{load_text(load)}</caption>"
    return (
        f"<div class='wide'><table>{caption}<thead><tr><th>policy</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(row: Row, unfinished: bool, *, base: bool) -> str:
    cells = []
    for quantity, mean, ratio in zip(KEY_FIGURES, row.means, row.ratios, strict=True):
        times = "" if ratio is None or base else f"<small>{ratio:.2f}×</small>"
        cells.append(f"<td>{mean.text(quantity)}{times}</td>")
    cells.append(f"<td><span class='measured'>{row.cpu_s:.1f}</span></td>")
    if unfinished:
        mark = " class='bad'" if row.unfinished else ""
        cells.append(f"<td{mark}>{row.unfinished} of {row.jobs}</td>")
    return f"<tr><th>{html.escape(row.policy)}</th>{''.join(cells)}</tr>"


def table_html(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    words: bool = False,
) -> str:
    """Return an HTML table; with ``words``, the last column holds text."""
    looks = [""] * (len(headings) - 1) + [" style='text-align:left;white-space:normal'" * words]
    head = "".join(
        f"<th{look}>{html.escape(heading)}</th>"
        for heading, look in zip(headings, looks, strict=True)
    )
    body = "".join(
        f"<tr><th>{html.escape(first)}</th>"
        + "".join(
            f"<td{look}>{html.escape(cell)}</td>"
            for cell, look in zip(rest, looks[1:], strict=True)
        )
        + "</tr>"
        for first, *rest in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return (
        f"<div class='wide'><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def figure_html(figure: Figure) -> str:
    """Return the element in which a figure is drawn, with one button per view."""
    buttons = "".join(
        f"<button type='button' data-view='{i}' aria-pressed='false'>"
        f"{html.escape(view.name)}</button>"
        for i, view in enumerate(figure.views)
    )
    choice = f"<div class='views'>{buttons}</div>" if len(figure.views) > 1 else ""
    note = f"<p class='note'>{html.escape(figure.note)}</p>" if figure.note else ""
    return (
        f"<figure id='{figure.id}'><h2>{html.escape(figure.title)}</h2>"
        f"<figcaption>{html.escape(figure.caption)}</figcaption>{note}{choice}"
        f"<div class='plot' id='plot-{figure.id}'></div></figure>"
    )


def figures_json(figures: Sequence[Figure]) -> str:
    """Return the data of the figures as JSON that is safe inside a script element."""
    shown: dict[str, Any] = {
        figure.id: {
            "chosen": figure.chosen,
            # A fixed engine: another one, if installed, would write other bytes.
            "views": [json.loads(view.picture.to_json(engine="json")) for view in figure.views],
        }
        for figure in figures
    }
    # A name in a trace could contain </script>.
    return json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")


def resource(name: str) -> str:
    """Return the text of a resource file of this package."""
    return files("fairlead.sim.report").joinpath(name).read_text(encoding="utf-8")
