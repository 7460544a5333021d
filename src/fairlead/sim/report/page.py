"""The report: one page of HTML that needs nothing but a browser."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from fairlead import __version__
from fairlead.sim.compare import Comparison, Outcome
from fairlead.sim.report import completion, timeline
from fairlead.sim.report import utilization as use
from fairlead.sim.report.means import KEY_FIGURES, Row, key_rows, load_text
from fairlead.sim.report.parameters import Asked
from fairlead.sim.report.style import Figure, Palette
from fairlead.sim.report.summary import listed, summary

_NO_TIMELINES = (
    "<p class='note'>There are no figures over time: this mechanism gives fractions of devices,"
    " so no job ever holds one.</p>"
)


def report(comparison: Comparison, outcomes: Sequence[Outcome], asked: Asked) -> str:
    """Return the page; the same outcomes give the same page, apart from measured times."""
    figures = figures_of(comparison, outcomes)
    parts = [
        page_head(_title(comparison.policies)),
        f"<p class='lead'>{html.escape(summary(comparison, outcomes))}</p>",
        _setting(asked),
        "<h2>Key figures</h2>",
        _tables(comparison, outcomes),
        *map(drawn, figures),
        "" if any(o.timeline for o in outcomes) else _NO_TIMELINES,
        f"<footer>Made by fairlead {__version__}.</footer></main>",
        f"<script>{get_plotlyjs()}</script>",
        f"<script type='application/json' id='figures'>{figures_json(figures)}</script>",
        f"<script>{resource('page.js')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def figures_of(comparison: Comparison, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Return the figures in the order in which they are read."""
    timelines = {o.run.policy: o.timeline for o in outcomes if o.timeline is not None}
    tenants = use.tenants_of(timelines)
    palette = Palette.of(comparison.policies, tenants)
    figures = [
        completion.jct_distribution(comparison, outcomes, palette),
        completion.jct_by_load(comparison, outcomes, palette),
        completion.fairness_distribution(comparison, outcomes, palette),
    ]
    if timelines:
        which = _which(comparison)
        cluster = comparison.cluster
        figures += [
            use.utilization(timelines, cluster, palette, which),
            use.tenant_shares(timelines, palette, which, tenants),
            timeline.devices_over_time(timelines, cluster, palette, which, tenants),
        ]
    return figures


def _which(comparison: Comparison) -> str:
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
    return html.escape(f"{first} against {listed(others)}")


def page_head(title: str) -> str:
    """Return the beginning of a page of this house."""
    # The policy makes the promise that nothing is loaded from elsewhere one the browser keeps.
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none';"
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title} – Fairlead</title><style>{resource('page.css')}</style></head>"
        f"<body><main><h1>{title}</h1>"
    )


def _setting(asked: Asked) -> str:
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>"
        for name, text in asked.descriptions().items()
    )
    return (
        f"<section class='setting'><h2>What was run</h2><dl>{rows}</dl>"
        f"<p>To run it again:</p><pre><code>{html.escape(asked.command())}</code></pre></section>"
    )


def _tables(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    several = len(comparison.seeds) > 1
    said = "Means over all seeds ± standard deviation over seeds" if several else "One run each"
    caption = (
        f"{said}; below each figure its ratio to the first policy. JCT: completion time, from"
        " arrival to finish. Makespan: from the first arrival to the last finish. ρ: finish-time"
        " fairness, below 1 is better than 1/n of the cluster. CPU time is measured, that of the"
        " simulation included."
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
        kind = " class='bad'" if row.unfinished else ""
        cells.append(f"<td{kind}>{row.unfinished} of {row.jobs}</td>")
    return f"<tr><th>{html.escape(row.policy)}</th>{''.join(cells)}</tr>"


def drawn(figure: Figure) -> str:
    """Return the place where a figure is drawn, with a button for each of its views."""
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
    """Return what the page's script draws, safe inside a script element."""
    shown: dict[str, Any] = {
        figure.id: {
            "chosen": figure.chosen,
            # The engine is named because another one, if installed, writes other bytes.
            "views": [json.loads(view.picture.to_json(engine="json")) for view in figure.views],
        }
        for figure in figures
    }
    # A name in a trace could hold </script>.
    return json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")


def resource(name: str) -> str:
    """Return a file that lies beside this one."""
    return files("fairlead.sim.report").joinpath(name).read_text(encoding="utf-8")
