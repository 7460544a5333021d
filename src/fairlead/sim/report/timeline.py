"""The figure of devices over time: which job holds which device, one row a device."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.sim.occupancy import Timeline
from fairlead.sim.report.style import Figure, Palette, View, axis, picture

MAX_HOURS = 24.0
MAX_BARS = 8000
"""of all policies together: about a megabyte of the report, and as much as a browser draws well"""
MAX_DEVICES = 128
_SHADES = (1.0, 0.8, 1.4)
"""neighbouring jobs of one tenant differ in shade"""


def devices_over_time(
    timelines: Mapping[str, Timeline],
    cluster: Cluster,
    palette: Palette,
    which: str,
    tenants: Sequence[str],
) -> Figure:
    """Return which job holds which device in the first day, a view for each policy.

    All views show the same hours: fewer where a day would take too many bars, and then the
    figure says so.
    """
    merged = {policy: _merge(timeline) for policy, timeline in timelines.items()}
    hours = _shown_hours(merged, timelines, MAX_BARS // max(len(timelines), 1))
    views = [
        View(
            policy,
            _gantt(
                timelines[policy], merged[policy], cluster, palette, tenants=tenants, hours=hours
            ),
        )
        for policy in timelines
    ]
    return Figure(
        "devices-over-time",
        "Which job holds which device",
        f"{which} One row a device, grouped by node; colour is the tenant, and shades tell its"
        " jobs apart; gaps are idle. Short bars are preemptions; a gang shows as equal bars in"
        " several rows.",
        tuple(views),
        note=_note(timelines, cluster, hours),
    )


def _note(timelines: Mapping[str, Timeline], cluster: Cluster, hours: float) -> str:
    whole = max(t.until - t.begin for t in timelines.values()) / 3600
    said = []
    if hours < min(whole, MAX_HOURS) - 1e-9:
        said.append(f"Cut after {hours:.1f} h of {whole:.1f} h, so that the file stays small.")
    elif hours < whole:
        said.append(f"The first {hours:.0f} h of {whole:.1f} h.")
    n = len(cluster.node_of)
    if n > MAX_DEVICES:
        said.append(f"The first {MAX_DEVICES} of {n} devices.")
    return " ".join(said)


Bars = tuple[IntArray, IntArray, FloatArray, FloatArray]


def _merge(timeline: Timeline) -> Bars:
    """Return job, device, start and end in hours, leases that follow each other made one."""
    order = np.lexsort((timeline.start, timeline.device))
    order = order[timeline.device[order] < MAX_DEVICES]
    job, device = timeline.job[order], timeline.device[order]
    start, end = timeline.start[order], timeline.end[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (job[1:] != job[:-1]) | (device[1:] != device[:-1]) | (start[1:] != end[:-1])
    last = np.append(new[1:], True)[: len(new)]
    begin = timeline.begin
    return job[new], device[new], (start[new] - begin) / 3600, (end[last] - begin) / 3600


def _shown_hours(
    merged: Mapping[str, Bars], timelines: Mapping[str, Timeline], most: int
) -> float:
    hours = min(MAX_HOURS, max((t.until - t.begin) / 3600 for t in timelines.values()))
    for _, _, start, _ in merged.values():
        if len(start) > most:
            hours = min(hours, float(np.sort(start)[most]))
    return hours


def _gantt(
    timeline: Timeline,
    bars: Bars,
    cluster: Cluster,
    palette: Palette,
    *,
    tenants: Sequence[str],
    hours: float,
) -> go.Figure:
    job, device, start, end = (column[bars[2] < hours] for column in bars)
    end = np.minimum(end, hours)
    labels = _labels(cluster)
    traces: list[go.Bar] = []
    for tenant in sorted(tenants):
        mine = np.array([timeline.jobs[number].tenant == tenant for number in job.tolist()], bool)
        if mine.any():
            held = job[mine], device[mine], start[mine], end[mine]
            colour, legend = palette.tenant(tenant)
            if not any(trace.name == legend for trace in traces):
                traces.append(_legend_entry(legend, colour, labels[0]))
            traces.append(_tenant_bars(timeline, held, labels, colour, legend))
    inner = 18 * min(len(labels), 30) + 9 * max(len(labels) - 30, 0)
    return picture(
        traces,
        height=100 + inner,
        legend={"orientation": "h", "x": 0, "y": 1 + 8 / inner, "yanchor": "bottom"},
        barmode="overlay",
        bargap=0.12,
        xaxis=axis("time since the first arrival (h)", range=[0, hours]),
        yaxis=axis(
            "",
            type="category",
            categoryorder="array",
            categoryarray=labels[::-1],
            range=[-0.6, len(labels) - 0.4],
            showgrid=False,
            tickfont={"size": 11 if len(labels) <= 40 else 9},
        ),
        hovermode="closest",
    )


def _tenant_bars(
    timeline: Timeline, bars: Bars, labels: Sequence[str], colour: str, legend: str
) -> go.Bar:
    """Return the bars of a tenant's jobs."""
    job, device, start, end = bars
    held = [timeline.jobs[number] for number in job.tolist()]
    untils = end.round(3).tolist()
    return go.Bar(
        orientation="h",
        name=legend,
        legendgroup=legend,
        showlegend=False,
        base=start.round(3),
        x=(end - start).round(4),
        y=[labels[d] for d in device.tolist()],
        marker={
            "color": [_shade(colour, _SHADES[n % len(_SHADES)]) for n in job.tolist()],
            "line": {"width": 0},
        },
        customdata=[
            [each.id, each.workload, _gangs(each), until]
            for each, until in zip(held, untils, strict=True)
        ],
        hovertemplate="job %{customdata[0]}, gang %{customdata[2]}<br>%{customdata[1]}"
        "<br>%{y}, from %{base:.2f} to %{customdata[3]:.2f} h"
        f"<extra>{held[0].tenant}</extra>",
    )


def _gangs(job: Job) -> str:
    """Return the devices that a job needs at once: 1, or 1 (k80: 2) where these differ."""
    others = ", ".join(f"{kind}: {count}" for kind, count in job.gangs.items())
    return f"{job.gang} ({others})" if others else str(job.gang)


def _legend_entry(legend: str, colour: str, label: str) -> go.Bar:
    """Return an empty bar: the legend would else show the shade of the first job."""
    return go.Bar(
        orientation="h",
        name=legend,
        legendgroup=legend,
        x=[0],
        y=[label],
        marker={"color": colour, "line": {"width": 0}},
        hoverinfo="skip",
    )


def _labels(cluster: Cluster) -> list[str]:
    labels = [
        f"{node.id} · {accelerator} {i}" if len(set(node.devices)) > 1 else f"{node.id} · {i}"
        for node in cluster.nodes
        for i, accelerator in enumerate(node.devices)
    ]
    return labels[:MAX_DEVICES]


def _shade(colour: str, part: float) -> str:
    """Return a colour darkened for a part below 1, lightened for one above."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    if part <= 1:
        mixed = [channel * part for channel in channels]
    else:
        mixed = [channel + (255 - channel) * (part - 1) for channel in channels]
    return "#" + "".join(f"{round(channel):02x}" for channel in mixed)
