"""Views of the timeline, as fields of its messages."""

import math
from collections.abc import Callable, Container, Sequence

import numpy as np

from fairlead.live.timeline.columns import NONE, Window, device_columns, jobs_in
from fairlead.live.timeline.hours import Hour
from fairlead.live.timeline.intervals import merged
from fairlead.live.timeline.outages import joined
from fairlead.live.timeline.shares import series
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster


def timeline_view(
    hours: Sequence[Hour],
    cluster: Cluster,
    *,
    begin: float,
    end: float,
    columns: int,
    devices: range,
    now: float,
    can_see: Callable[[str], bool],
    kept: Container[str],
) -> dict[str, object]:
    """Return the fields of a Timeline."""
    intervals = merged([hour.intervals for hour in hours])
    window = Window(begin, end, columns, devices)
    visible = np.array([can_see(tenant) for _, tenant in intervals.jobs], dtype=bool)
    shown, of_jobs = device_columns(intervals, visible, window), jobs_in(intervals, window)
    named = np.zeros(len(intervals.jobs), dtype=bool)
    named[shown.run_job[shown.run_job >= 0]] = True
    named[shown.mark_job] = True
    numbers = named.nonzero()[0]
    index = np.full(len(named), NONE)
    index[numbers] = np.arange(len(numbers))
    jobs = [intervals.jobs[i] for i in numbers.tolist()]
    names, addresses = cluster.accelerators, cluster.addresses
    accelerator_of = cluster.accelerator_of.tolist()
    return {
        "begin": begin,
        "end": end,
        "columns": columns,
        "now": now,
        "total_devices": len(addresses),
        "devices": [
            {
                "node": addresses[i][0],
                "number": addresses[i][1],
                "accelerator": names[accelerator_of[i]],
            }
            for i in devices
        ],
        "jobs": {
            "id": [job for job, _ in jobs],
            "tenant": [tenant for _, tenant in jobs],
            "kept": [job in kept for job, _ in jobs],
            "device_s": of_jobs.device_s[numbers].round(1).tolist(),
            "preemptions": of_jobs.preemptions[numbers].tolist(),
            "failures": of_jobs.failures[numbers].tolist(),
        },
        "runs": {
            "device": shown.run_device.tolist(),
            "first": shown.run_first.tolist(),
            "end": shown.run_end.tolist(),
            "job": _indexes(shown.run_job, index),
        },
        "marks": {
            "device": shown.mark_device.tolist(),
            "column": shown.mark_column.tolist(),
            "kind": shown.mark_kind.tolist(),
            "job": _indexes(shown.mark_job, index),
        },
        "outages": _outages_view(hours, window, {addresses[i][0] for i in devices}),
    }


def _outages_view(
    hours: Sequence[Hour], window: Window, nodes: Container[str]
) -> dict[str, list[object]]:
    """Return the fields of TimelineOutages, cut off at the window's ends."""
    shown = [
        outage
        for outage in joined(outage for hour in hours for outage in hour.outages)
        if outage.node in nodes and outage.began_at < window.end and outage.ended_at > window.begin
    ]
    return {
        "node": [outage.node for outage in shown],
        "begin": [round(max(outage.began_at, window.begin), 3) for outage in shown],
        "end": [round(min(outage.ended_at, window.end), 3) for outage in shown],
    }


def _indexes(jobs: IntArray, index: IntArray) -> list[int]:
    """Return the indexes of jobs in a shorter list; negative numbers stay."""
    if not len(index):
        return [int(job) for job in jobs]
    indexes: list[int] = np.where(jobs >= 0, index[np.maximum(jobs, 0)], jobs).tolist()
    return indexes


def shares_view(
    hours: Sequence[Hour],
    *,
    begin: float,
    end: float,
    columns: int,
    half_life_s: float,
    can_see: Callable[[str], bool],
) -> dict[str, object]:
    """Return the fields of a SharesHistory."""
    parts = [hour.shares for hour in hours]
    tenants = sorted({tenant for part in parts for tenant in part.tenants if can_see(tenant)})
    shares = series(parts, tenants, begin=begin, end=end, columns=columns, half_life_s=half_life_s)
    return {
        "begin": begin,
        "end": end,
        "half_life_s": half_life_s,
        "at": np.linspace(begin, end, columns + 1)[1:].round(3).tolist(),
        "tenants": [
            {
                "tenant": tenant,
                "entitled": _known(shares.entitled[:, i]),
                "received": _known(shares.received[:, i]),
                "entitled_average": _known(shares.entitled_average[:, i]),
                "received_average": _known(shares.received_average[:, i]),
            }
            for i, tenant in enumerate(tenants)
        ],
    }


def _known(values: FloatArray) -> list[float | None]:
    """Return values as JSON has them, null for unknown ones."""
    return [None if math.isnan(value) else round(value, 5) for value in values.tolist()]
