"""Figures of a search: best value so far, learning curves, parallel coordinates."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from fairlead.model.submission.search import Parameter, Range, Value
from fairlead.sim.report.style import Figure, View, axis, picture
from fairlead.tuning.report.record import SearchRecord, TrialRecord

MAX_TRIALS = 150
"""trials in a figure with a line per trial; if there are more, the best"""
_SCALE = ["rgb(0,114,178)", "rgb(86,180,233)", "rgb(184,190,198)"]
"""from the best to the worst"""
_BEST = {"color": "#D55E00", "width": 3.0}


def figures_of(record: SearchRecord) -> list[Figure]:
    """Return the figures in reading order; none if the server has no report of a trial."""
    if not any(trial.reports for trial in record.trials):
        return []
    return [_best_so_far(record), _learning_curves(record), _parallel_coordinates(record)]


def _best_so_far(record: SearchRecord) -> Figure:
    best = list(record.improvements())
    end_s = max(report.at for trial in record.trials for report in trial.reports)
    by_time = _steps([at / 60.0 for at, *_ in best], end_s / 60.0, best)
    by_hours = _steps([hours for _, hours, *_ in best], record.device_hours, best)
    metric = record.search.metric
    views = []
    for name, label, line in (
        ("time", "minutes since the first submission", by_time),
        ("device hours", "device hours of all trials", by_hours),
    ):
        drawn = picture(
            [line],
            height=400,
            showlegend=False,
            xaxis=axis(label, rangemode="tozero"),
            yaxis=axis(f"best {metric}"),
        )
        if record.search.target is not None:
            drawn.add_hline(y=record.search.target, line={"color": "#888888", "dash": "dot"})
        views.append(View(name, drawn))
    caption = (
        f"Best {metric} so far; every marker is a report that beats all before. Device hours of a"
        " trial are counted in proportion to its steps."
        + ("" if record.search.target is None else " The dotted line is the target.")
    )
    return Figure("best-so-far", "Best value so far", caption, tuple(views))


def _steps(
    x: Sequence[float], end: float, best: Sequence[tuple[float, float, TrialRecord, float]]
) -> go.Scatter:
    values = [value for *_, value in best]
    texts = [_hover(trial) for _, _, trial, _ in best]
    return go.Scatter(
        x=[*x, max(end, x[-1])],
        y=[*values, values[-1]],
        text=[*texts, texts[-1]],
        mode="lines+markers",
        line={"color": _BEST["color"], "shape": "hv"},
        marker={
            "size": [7.0] * len(x) + [0.0],
            "color": _BEST["color"],
            "line": {"width": 0},
        },
        hovertemplate="%{y:.5g} after %{x:.2f}<br>%{text}<extra></extra>",
    )


def _learning_curves(record: SearchRecord) -> Figure:
    shown, note = _shown(record)
    lines = [
        go.Scatter(
            x=[report.steps for report in trial.reports],
            y=[report.value for report in trial.reports],
            mode="lines" if len(trial.reports) > 1 else "markers",
            line=style,
            opacity=1.0 if style is _BEST else 0.7,
            text=[_hover(trial)] * len(trial.reports),
            hovertemplate="%{y:.5g} after %{x} steps<br>%{text}<extra></extra>",
        )
        for trial, style in shown
    ]
    drawn = picture(
        lines,
        height=460,
        showlegend=False,
        hovermode="closest",
        xaxis=axis("steps", rangemode="tozero"),
        yaxis=axis(record.search.metric),
    )
    caption = (
        "One line per trial: the best in orange, the others from blue (good) to grey. A line that"
        " ends early belongs to a trial that was stopped."
    )
    return Figure("curves", "Learning curves", caption, (View("all", drawn),), note=note)


def _parallel_coordinates(record: SearchRecord) -> Figure:
    shown, note = _shown(record)
    labels = [*record.search.space, record.search.metric]
    scales = [_Scale.of(parameter) for parameter in record.search.space.values()]
    results = [trial.best for trial in record.ranked if trial.best is not None]
    scales.append(_Scale(min(results), max(results)))
    lines = []
    for trial, style in shown:
        values: list[Value] = [trial.point[label] for label in labels[:-1]]
        values.append(trial.best or 0.0)
        lines.append(
            go.Scatter(
                x=list(range(len(labels))),
                y=[scale.height(v) for scale, v in zip(scales, values, strict=True)],
                mode="lines",
                line=style,
                opacity=1.0 if style is _BEST else 0.6,
                text=[_hover(trial)] * len(labels),
                hovertemplate="%{text}<extra></extra>",
            )
        )
    ticks = [_tick(i, *mark) for i, scale in enumerate(scales) for mark in scale.marks()]
    drawn = picture(
        lines,
        height=480,
        showlegend=False,
        hovermode="closest",
        annotations=ticks,
        xaxis=axis(
            "",
            tickvals=list(range(len(labels))),
            ticktext=[html.escape(label) for label in labels],
            range=[-0.3, len(labels) - 0.7],
            zeroline=False,
        ),
        yaxis={"visible": False, "range": [-0.06, 1.06]},
    )
    caption = (
        "One line per trial through its hyperparameters and its best value: the best in orange,"
        " the others from blue (good) to grey. Ranges with `log` have a logarithmic axis."
    )
    return Figure(
        "parallel-coordinates", "Hyperparameters", caption, (View("all", drawn),), note=note
    )


class _Scale:
    """A vertical axis of the parallel coordinates, from height 0 to 1."""

    def __init__(
        self, low: float, high: float, *, log: bool = False, values: Sequence[Value] = ()
    ) -> None:
        self._low, self._high, self._log, self._values = low, high, log, values

    @classmethod
    def of(cls, parameter: Parameter) -> "_Scale":
        if isinstance(parameter, Range):
            return cls(parameter.low, parameter.high, log=parameter.log)
        return cls(0.0, len(parameter.values) - 1.0, values=parameter.values)

    def height(self, value: Value) -> float:
        """Return the height of a value; one in the middle if all are equal."""
        at = self._values.index(value) if self._values else float(value)
        low, high = self._low, self._high
        if self._log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return 0.5 if high <= low else (at - low) / (high - low)

    def marks(self) -> list[tuple[float, str]]:
        """Return heights and texts: the listed values, or both ends."""
        values: Sequence[Value] = self._values or (self._low, self._high)
        return [(self.height(v), f"{v:.4g}" if isinstance(v, float) else str(v)) for v in values]


def _tick(index: int, height: float, text: str) -> dict[str, Any]:
    return {
        "x": index,
        "y": height,
        "text": html.escape(text),
        "showarrow": False,
        "xanchor": "left",
        "xshift": 4,
        "yshift": 8,
        "font": {"size": 11},
    }


def _shown(record: SearchRecord) -> tuple[list[tuple[TrialRecord, Mapping[str, Any]]], str]:
    """Return the trials with their line styles, the best last and so on top, and a note."""
    ranked = record.ranked
    best, *others = ranked[:MAX_TRIALS]
    places = [i / max(len(others) - 1, 1) for i in range(len(others))]
    colours = sample_colorscale(_SCALE, places) if others else []
    styled: list[tuple[TrialRecord, Mapping[str, Any]]] = [(best, _BEST)]
    for trial, colour in zip(others, colours, strict=True):
        styled.append((trial, {"color": colour, "width": 1.2}))
    note = ""
    if len(ranked) > MAX_TRIALS:
        note = f"The best {MAX_TRIALS} of {len(ranked)} trials with reports."
    return styled[::-1], note


def _hover(trial: TrialRecord) -> str:
    point = ", ".join(f"{label} {value}" for label, value in trial.point.items())
    best = "" if trial.best is None else f", best {trial.best:.5g}"
    return html.escape(f"trial {trial.number}: {point}{best}, {trial.end}")
