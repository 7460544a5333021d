"""Figures of utilization and of received against entitled shares of tenants."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.sim.occupancy import Timeline
from fairlead.sim.report.buckets import edges, entitled, held_s
from fairlead.sim.report.style import REFERENCE, Figure, Palette, View, axis, picture

MAX_TENANTS = 6


def tenants_of(timelines: Mapping[str, Timeline]) -> list[str]:
    """Return the tenants by device time held over all policies, largest first."""
    held: dict[str, float] = {}
    for timeline in timelines.values():
        names = [job.tenant for job in timeline.jobs]
        for name in names:
            held.setdefault(name, 0.0)
        seconds = np.bincount(
            timeline.job, weights=timeline.end - timeline.start, minlength=len(names)
        )
        for name, time_s in zip(names, seconds.tolist(), strict=True):
            held[name] += time_s
    return sorted(held, key=lambda name: (-held[name], name))


def tenant_shares(
    timelines: Mapping[str, Timeline], palette: Palette, shown_run: str, tenants: Sequence[str]
) -> Figure:
    """Return each tenant's share of device time over time, one view per policy."""
    shown = sorted(tenants[:MAX_TENANTS])
    views = [
        View(policy, _shares(timeline, palette, shown, tenants))
        for policy, timeline in timelines.items()
    ]
    left = len(tenants) - len(shown)
    return Figure(
        "tenant-shares",
        "Received and entitled shares of tenants",
        f"{shown_run} Area: the tenant's fraction of the device time used. Dashed: its fraction of"
        " the weights of all unfinished jobs. An area below the dashed line while the cluster is"
        " full shows a tenant that receives less than its entitlement.",
        tuple(views),
        note=f"The {len(shown)} tenants with the most device time; {left} others are omitted."
        if left
        else "",
    )


def _shares(
    timeline: Timeline, palette: Palette, shown: Sequence[str], tenants: Sequence[str]
) -> go.Figure:
    bounds = edges(timeline.begin, timeline.until)
    number = {tenant: i for i, tenant in enumerate(tenants)}
    of_job = np.array([number[job.tenant] for job in timeline.jobs])
    held = held_s(timeline, of_job[timeline.job], len(tenants), bounds)
    with np.errstate(invalid="ignore"):
        received = held / held.sum(axis=1, keepdims=True) * 100
    due = entitled(timeline, tenants, bounds) * 100
    hour = _middles(bounds)
    traces = []
    for row, tenant in enumerate(shown, start=1):
        where = {"xaxis": "x", "yaxis": f"y{row if row > 1 else ''}", "x": hour}
        hover = "%{y:.1f} % at %{x:.1f} h<extra>" + tenant
        traces.append(
            go.Scatter(
                y=_plain(received[:, number[tenant]]),
                name="received",
                showlegend=row == 1,
                mode="lines",
                fill="tozeroy",
                line={"color": palette.tenant(tenant)[0], "width": 1, "shape": "hvh"},
                hovertemplate=hover + " received</extra>",
                **where,
            )
        )
        traces.append(
            go.Scatter(
                y=_plain(due[:, number[tenant]]),
                name="entitled",
                showlegend=row == 1,
                mode="lines",
                meta=REFERENCE,
                line={"width": 1.5, "dash": "dash", "shape": "hvh"},
                hovertemplate=hover + " entitled</extra>",
                **where,
            )
        )
    return _stacked(traces, shown, "share of device time (%)")


def utilization(
    timelines: Mapping[str, Timeline], cluster: Cluster, palette: Palette, shown_run: str
) -> Figure:
    """Return the utilization of each accelerator over time, all policies in one chart."""
    accelerators, counts = cluster.accelerators, cluster.counts
    begin = min(timeline.begin for timeline in timelines.values())
    bounds = edges(begin, max(timeline.until for timeline in timelines.values()))
    hour = _middles(bounds)
    length = np.diff(bounds)[:, None]
    traces = []
    for policy, timeline in timelines.items():
        on = cluster.accelerator_of[timeline.device]
        busy = held_s(timeline, on, len(accelerators), bounds) / (length * counts) * 100
        for row in range(len(accelerators)):
            traces.append(
                go.Scatter(
                    x=hour,
                    y=_plain(busy[:, row]),
                    xaxis="x",
                    yaxis=f"y{row + 1 if row else ''}",
                    name=policy,
                    legendgroup=policy,
                    showlegend=row == 0,
                    mode="lines",
                    line={**palette.policies[policy], "width": 2, "shape": "hvh"},
                    hovertemplate=f"%{{y:.1f}} % of {accelerators[row]} at %{{x:.1f}} h"
                    f"<extra>{policy}</extra>",
                )
            )
    labels = [f"{name} ({n})" for name, n in zip(accelerators, counts.tolist(), strict=True)]
    return Figure(
        "utilization",
        "Utilization of accelerators",
        f"{shown_run} Fraction of an accelerator's devices (their number in brackets) that jobs"
        " hold. After the last arrival the cluster empties: an earlier fall means that the work"
        " finished sooner.",
        (View("all policies", _stacked(traces, labels, "devices held (%)")),),
    )


def _stacked(traces: Sequence[go.Scatter], labels: Sequence[str], title: str) -> go.Figure:
    """Return one row per label, the first on top, over a common time axis."""
    n = len(labels)
    gap = 0.12 / n
    axes: dict[str, object] = {}
    for i, label in enumerate(labels):
        top = 1 - i / n
        axes[f"yaxis{i + 1 if i else ''}"] = axis(
            label, range=[0, 102], nticks=5, domain=[max(top - 1 / n + gap, 0), top]
        )
    last = f"y{n if n > 1 else ''}"
    chart = picture(
        traces,
        height=130 + 130 * n,
        xaxis=axis("time since the first arrival (h)", anchor=last, rangemode="tozero"),
        hovermode="closest",
        **axes,
    )
    chart.update_layout(margin={"t": 60})
    chart.add_annotation(
        text=title, x=0, xref="paper", y=1, yref="paper", yanchor="bottom", xanchor="left",
        showarrow=False, font={"size": 12},
    )  # fmt: skip
    chart.update_layout(legend={"y": 1.0 + 30 / (130 * n)})
    return chart


def _middles(bounds: FloatArray) -> FloatArray:
    middles: FloatArray = ((bounds[1:] + bounds[:-1]) / 2 - bounds[0]) / 3600
    return middles.round(4)


def _plain(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 2) for value in values.tolist()]
