"""Figures of completion times: distribution, by load, and finish-time fairness."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from fairlead.model.arrays import FloatArray
from fairlead.sim.compare import Comparison, JobColumns, Outcome
from fairlead.sim.report.means import AVERAGE_JCT, load_text, mean, outcomes_by_policy
from fairlead.sim.report.style import Figure, Palette, View, axis, log_ticks, picture

MAX_POINTS = 600
"""points of a distribution's curve; more would be less than a pixel apart"""


def jct_distribution(
    comparison: Comparison, outcomes: Sequence[Outcome], palette: Palette
) -> Figure:
    """Return the distribution of completion times, one view per load."""

    def hours(jobs: JobColumns) -> FloatArray:
        return jobs.jct_s / 3600

    return Figure(
        "jct-distribution",
        "Completion times",
        "Fraction of all jobs that finish within a completion time (from arrival to finish, log"
        f" scale){_pooled(comparison)}. Further left and higher is better. A curve that ends"
        " below 100 % has unfinished jobs.",
        _by_load(
            comparison, outcomes, palette, values=hours, label="completion time (h)", unit="h"
        ),
        chosen=comparison.loads.index(comparison.chosen_load),
    )


def fairness_distribution(
    comparison: Comparison, outcomes: Sequence[Outcome], palette: Palette
) -> Figure:
    """Return the distribution of finish-time fairness, one view per load."""
    views = _by_load(
        comparison,
        outcomes,
        palette,
        values=lambda jobs: jobs.rho,
        label="finish-time fairness ρ",
        unit="",
    )
    for view in views:
        view.picture.add_vline(x=1, line={"color": "#888888", "dash": "dot", "width": 1.5})
    return Figure(
        "finish-time-fairness",
        "Finish-time fairness",
        "ρ is a job's completion time divided by its completion time on an exclusive 1/n of the"
        f" cluster, where n is the number of concurrent jobs{_pooled(comparison)}. Jobs left of"
        " the dotted line (ρ < 1) benefit from sharing; a long tail to the right shows jobs that"
        " are treated badly.",
        views,
        chosen=comparison.loads.index(comparison.chosen_load),
    )


def _pooled(comparison: Comparison) -> str:
    return f", pooled over {len(comparison.seeds)} seeds" if len(comparison.seeds) > 1 else ""


def _by_load(
    comparison: Comparison,
    outcomes: Sequence[Outcome],
    palette: Palette,
    *,
    values: Callable[[JobColumns], FloatArray],
    label: str,
    unit: str,
) -> tuple[View, ...]:
    views = []
    for load in comparison.loads:
        values_of = {
            policy: np.concatenate([values(o.jobs) for o in runs])
            for policy, runs in outcomes_by_policy(outcomes, load).items()
        }
        seen = np.concatenate(list(values_of.values()))
        seen = seen[np.isfinite(seen) & (seen > 0)]
        low, high = (seen.min(), seen.max()) if len(seen) else (0.1, 10.0)
        lines = [_curve(policy, values_of[policy], palette, unit) for policy in values_of]
        views.append(
            View(
                load_text(load),
                picture(
                    lines,
                    height=430,
                    xaxis=axis(label, **log_ticks(low, high)),
                    yaxis=axis("jobs (%)", range=[0, 101]),
                    hovermode="closest",
                ),
            )
        )
    return tuple(views)


def _curve(policy: str, values: FloatArray, palette: Palette, unit: str) -> go.Scatter:
    done = np.sort(values[np.isfinite(values)])
    # Unfinished jobs count in the total, so that a policy cannot look fast by starving jobs.
    part = np.arange(1, len(done) + 1) / max(len(values), 1) * 100
    if len(done) > MAX_POINTS:
        kept = np.unique(np.linspace(0, len(done) - 1, MAX_POINTS).round().astype(np.int64))
        done, part = done[kept], part[kept]
    return go.Scatter(
        x=done.round(5),
        y=part.round(3),
        name=policy,
        mode="lines",
        line={**palette.policies[policy], "width": 2.5, "shape": "hv"},
        hovertemplate=f"{policy}<br>%{{y:.1f}} % of jobs within %{{x:.3g}} {unit}<extra></extra>",
    )


def jct_by_load(comparison: Comparison, outcomes: Sequence[Outcome], palette: Palette) -> Figure:
    """Return average completion times against the load, or as bars if there is one load."""
    several = len(comparison.loads) > 1
    traces = (_lines if several else _bars)(comparison, outcomes, palette)
    top = max((t for t in map(_top, traces) if t is not None), default=1.0)
    spread = len(comparison.seeds) > 1
    chart = picture(
        traces,
        height=430,
        xaxis=axis("load (jobs arriving per hour)", tickvals=list(comparison.loads))
        if several
        else axis("", type="category", showgrid=False),
        yaxis=axis("average completion time (h)", range=[0, top * 1.1]),
        showlegend=several,
        hovermode="x unified" if several else "closest",
    )
    caption = "Average over all finished jobs; lower is better."
    if several:
        caption += " A curve bends upwards at the load that exceeds the cluster's capacity."
    if spread:
        caption += f" Error bars show ± one standard deviation over {len(comparison.seeds)} seeds."
    title = "Average completion time" + (" against load" if several else "")
    return Figure("jct-by-load", title, caption, (View("all loads", chart),))


def _lines(
    comparison: Comparison, outcomes: Sequence[Outcome], palette: Palette
) -> list[go.Scatter]:
    traces = []
    for policy in comparison.policies:
        means = [
            mean(outcomes_by_policy(outcomes, load)[policy], AVERAGE_JCT)
            for load in comparison.loads
        ]
        traces.append(
            go.Scatter(
                x=list(comparison.loads),
                y=[m.value for m in means],
                error_y=_error([m.deviation for m in means]),
                name=policy,
                mode="lines+markers",
                marker={"size": 8, "color": palette.policies[policy]["color"]},
                line={**palette.policies[policy], "width": 2.5},
                hovertemplate="%{y:.2f} h",
            )
        )
    return traces


def _bars(comparison: Comparison, outcomes: Sequence[Outcome], palette: Palette) -> list[go.Bar]:
    traces = []
    for policy, runs in outcomes_by_policy(outcomes, comparison.chosen_load).items():
        average = mean(runs, AVERAGE_JCT)
        traces.append(
            go.Bar(
                x=[policy],
                y=[average.value],
                error_y=_error([average.deviation]),
                name=policy,
                width=0.55,
                marker={"color": palette.policies[policy]["color"]},
                hovertemplate=f"{policy}: %{{y:.2f}} h<extra></extra>",
            )
        )
    return traces


def _error(deviations: Sequence[float | None]) -> dict[str, object]:
    known = [deviation or 0.0 for deviation in deviations]
    return {"type": "data", "array": known, "visible": any(known), "thickness": 1.5, "width": 5}


def _top(trace: go.Scatter | go.Bar) -> float | None:
    errors = trace.error_y.array if trace.error_y.array is not None else [0.0] * len(trace.y)
    tops = [y + error for y, error in zip(trace.y, errors, strict=True) if y is not None]
    return max(tops, default=None)
