"""HTML page of a search: one self-contained page."""

import html

from fairlead.sim.report.page import figure_html, page_end, page_head, table_html
from fairlead.tuning.report.figures import figures_of
from fairlead.tuning.report.record import SearchRecord

_ROWS = 20


def search_page(record: SearchRecord) -> str:
    """Return the page; equal records give equal pages."""
    figures = figures_of(record)
    parts = [
        page_head(f"Search {html.escape(record.search.name)}"),
        f"<p class='lead'>{html.escape(_summary(record))}</p>",
        "<h2>Best trials</h2>",
        _table(record),
        *map(figure_html, figures),
        page_end(figures),
    ]
    return "\n".join(parts)


def _summary(record: SearchRecord) -> str:
    ranked, metric = record.ranked, record.search.metric
    counts = f"{len(record.trials)} trials, {record.device_hours:.2f} device hours"
    end = f" The search has ended: {record.reason}." if record.reason else " The search continues."
    if not ranked:
        return f"{counts}; no trial has reported {metric}.{end}"
    best = ranked[0]
    return f"{counts}; the best {metric} is {best.best:g}, of trial {best.number}.{end}"


def _table(record: SearchRecord) -> str:
    labels = list(record.search.space)
    rows = [
        [
            str(trial.number),
            *(str(trial.point[label]) for label in labels),
            f"{trial.best:g}",
            f"{trial.reports[-1].steps:g}" if trial.reports else "–",
            f"{trial.device_hours:.3f}",
            trial.end,
        ]
        for trial in record.ranked[:_ROWS]
    ]
    columns = ["trial", *labels, record.search.metric, "steps", "device hours", "end"]
    return table_html(columns, rows) if rows else ""
