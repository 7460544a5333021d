"""Figure of devices over time: the job on each device, one row per device."""

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
"""bars of all policies together: about a megabyte, and as many as a browser draws well"""
MAX_DEVICES = 128
_SHADES = (1.0, 0.8, 1.4)
"""brightness factors that distinguish the jobs of one tenant"""


def devices_over_time(
    timelines: Mapping[str, Timeline],
    cluster: Cluster,
    palette: Palette,
    shown_run: str,
    tenants: Sequence[str],
) -> Figure:
    """Return the jobs on each device during the first day, one view per policy.

    All views show the same hours. If a day takes too many bars, they show fewer hours and the
    figure has a note.
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
        "Jobs on devices",
        f"{shown_run} One row per device, grouped by node. Colours show tenants, shades their"
        " jobs; gaps are idle time. Short bars are preemptions; a gang shows as equal bars in"
        " several rows.",
        tuple(views),
        note=_note(timelines, cluster, hours),
    )


def _note(timelines: Mapping[str, Timeline], cluster: Cluster, hours: float) -> str:
    whole = max(t.until - t.begin for t in timelines.values()) / 3600
    notes = []
    if hours < min(whole, MAX_HOURS) - 1e-9:
        notes.append(f"The first {hours:.1f} h of {whole:.1f} h, to keep the file small.")
    elif hours < whole:
        notes.append(f"The first {hours:.0f} h of {whole:.1f} h.")
    n = len(cluster.node_of)
    if n > MAX_DEVICES:
        notes.append(f"The first {MAX_DEVICES} of {n} devices.")
    return " ".join(notes)


Bars = tuple[IntArray, IntArray, FloatArray, FloatArray]


def _merge(timeline: Timeline) -> Bars:
    """Return job, device, start and end in hours, with consecutive leases merged."""
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
    merged: Mapping[str, Bars], timelines: Mapping[str, Timeline], max_bars: int
) -> float:
    hours = min(MAX_HOURS, max((t.until - t.begin) / 3600 for t in timelines.values()))
    for _, _, start, _ in merged.values():
        if len(start) > max_bars:
            hours = min(hours, float(np.sort(start)[max_bars]))
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
        of_tenant = np.array(
            [timeline.jobs[number].tenant == tenant for number in job.tolist()], bool
        )
        if of_tenant.any():
            held = job[of_tenant], device[of_tenant], start[of_tenant], end[of_tenant]
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
    """Return the text of a job's gang: 1, or 1 (k80: 2) if it differs by accelerator."""
    others = ", ".join(f"{name}: {count}" for name, count in job.gangs.items())
    return f"{job.gang} ({others})" if others else str(job.gang)


def _legend_entry(legend: str, colour: str, label: str) -> go.Bar:
    """Return an empty bar for the legend, which would otherwise show the first job's shade."""
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


def _shade(colour: str, factor: float) -> str:
    """Return a colour darkened by a factor below 1 or lightened by one above."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    if factor <= 1:
        mixed = [channel * factor for channel in channels]
    else:
        mixed = [channel + (255 - channel) * (factor - 1) for channel in channels]
    return "#" + "".join(f"{round(channel):02x}" for channel in mixed)
