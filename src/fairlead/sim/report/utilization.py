"""Figures of use: what tenants received against their entitlement, and how busy devices were."""

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
    """Return the tenants, those that held most device time over all policies first."""
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
    timelines: Mapping[str, Timeline], palette: Palette, which: str, tenants: Sequence[str]
) -> Figure:
    """Return each tenant's share of device time over time, a view for each policy."""
    shown = sorted(tenants[:MAX_TENANTS])
    views = [
        View(policy, _shares(timeline, palette, shown, tenants))
        for policy, timeline in timelines.items()
    ]
    left = len(tenants) - len(shown)
    return Figure(
        "tenant-shares",
        "What tenants receive, and what they are entitled to",
        f"{which} Area: the tenant's part of all device time used. Dashed: its part of the"
        " weights of all unfinished jobs. An area that stays below its dashed line while the"
        " cluster is full shows a tenant that gets less than it is entitled to.",
        tuple(views),
        note=f"The {len(shown)} tenants with most device time; {left} more are not drawn."
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
    timelines: Mapping[str, Timeline], cluster: Cluster, palette: Palette, which: str
) -> Figure:
    """Return how busy each accelerator is over time, all policies in one picture."""
    kinds, counts = cluster.accelerators, cluster.counts
    begin = min(timeline.begin for timeline in timelines.values())
    bounds = edges(begin, max(timeline.until for timeline in timelines.values()))
    hour = _middles(bounds)
    length = np.diff(bounds)[:, None]
    traces = []
    for policy, timeline in timelines.items():
        kind = cluster.accelerator_of[timeline.device]
        busy = held_s(timeline, kind, len(kinds), bounds) / (length * counts) * 100
        for row in range(len(kinds)):
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
                    hovertemplate=f"%{{y:.1f}} % of {kinds[row]} at %{{x:.1f}} h"
                    f"<extra>{policy}</extra>",
                )
            )
    labels = [f"{kind} ({n})" for kind, n in zip(kinds, counts.tolist(), strict=True)]
    return Figure(
        "utilization",
        "How busy each accelerator is",
        f"{which} Part of an accelerator's devices (their number in brackets) that some job"
        " holds. After the last arrival the cluster drains: an early fall means that the work was"
        " done sooner.",
        (View("all policies", _stacked(traces, labels, "devices held (%)")),),
    )


def _stacked(traces: Sequence[go.Scatter], labels: Sequence[str], title: str) -> go.Figure:
    """Return one row a label, the first on top, over a common time axis."""
    n = len(labels)
    gap = 0.12 / n
    axes: dict[str, object] = {}
    for i, label in enumerate(labels):
        top = 1 - i / n
        axes[f"yaxis{i + 1 if i else ''}"] = axis(
            label, range=[0, 102], nticks=5, domain=[max(top - 1 / n + gap, 0), top]
        )
    last = f"y{n if n > 1 else ''}"
    drawn = picture(
        traces,
        height=130 + 130 * n,
        xaxis=axis("time since the first arrival (h)", anchor=last, rangemode="tozero"),
        hovermode="closest",
        **axes,
    )
    drawn.update_layout(margin={"t": 60})
    drawn.add_annotation(
        text=title, x=0, xref="paper", y=1, yref="paper", yanchor="bottom", xanchor="left",
        showarrow=False, font={"size": 12},
    )  # fmt: skip
    drawn.update_layout(legend={"y": 1.0 + 30 / (130 * n)})
    return drawn


def _middles(bounds: FloatArray) -> FloatArray:
    middles: FloatArray = ((bounds[1:] + bounds[:-1]) / 2 - bounds[0]) / 3600
    return middles.round(4)


def _plain(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 2) for value in values.tolist()]
