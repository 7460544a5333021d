"""Timelines in time buckets: device time held, and entitled shares of tenants."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.sim.occupancy import Timeline

_STEPS_S = tuple(60.0 * m for m in (1, 5, 10, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080))
MAX_BUCKETS = 80


def edges(begin: float, until: float) -> FloatArray:
    """Return the bounds of at most MAX_BUCKETS buckets of a round length, such as 10 minutes."""
    span = max(until - begin, 1.0)
    step = next((s for s in _STEPS_S if span / s <= MAX_BUCKETS), span / MAX_BUCKETS)
    bounds = begin + step * np.arange(int(np.ceil(span / step)) + 1, dtype=np.float64)
    bounds[-1] = begin + span
    return bounds


def held_s(timeline: Timeline, group: IntArray, n_groups: int, bounds: FloatArray) -> FloatArray:
    """Return buckets × groups → device-seconds held; ``group`` is the group of each holding."""
    until = [
        np.bincount(
            group,
            weights=np.clip(bound - timeline.start, 0, timeline.end - timeline.start),
            minlength=n_groups,
        )
        for bound in bounds.tolist()
    ]
    held: FloatArray = np.diff(np.array(until), axis=0)
    return held


def entitled(timeline: Timeline, tenants: Sequence[str], bounds: FloatArray) -> FloatArray:
    """Return buckets × tenants → fraction of the weights of unfinished jobs, averaged over time.

    NaN in buckets without jobs.
    """
    number = {name: i for i, name in enumerate(tenants)}
    arrival = np.array([job.arrival_at for job in timeline.jobs])
    weight = np.array([job.weight for job in timeline.jobs])
    last = np.where(np.isnan(timeline.finished_at), bounds[-1], timeline.finished_at)
    here = arrival < last
    tenant = np.array([number[job.tenant] for job in timeline.jobs])[here]
    at = np.concatenate([arrival[here], last[here]])
    change = np.zeros((len(at), len(tenants)))
    change[np.arange(len(at)), np.concatenate([tenant, tenant])] = np.concatenate(
        [weight[here], -weight[here]]
    )
    order = at.argsort(kind="stable")
    at, present = at[order], change[order].cumsum(axis=0)
    total = present.sum(axis=1, keepdims=True)
    # Rounding errors remain in the sums after the last job has finished.
    some = total > 1e-9 * weight.sum()
    part = np.divide(present, total, out=np.zeros_like(present), where=some)
    return _averages(at, np.hstack([part, some]), bounds)


def _averages(at: FloatArray, level: FloatArray, bounds: FloatArray) -> FloatArray:
    """Return the mean per bucket of levels that start ``at``; the last column counts the time."""
    area = np.vstack(
        [np.zeros(level.shape[1]), (level[:-1] * np.diff(at)[:, None]).cumsum(axis=0)]
    )
    at_bounds = np.array([np.interp(bounds, at, column) for column in area.T]).T
    each = np.diff(at_bounds, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: FloatArray = np.where(each[:, -1:] > 1e-6, each[:, :-1] / each[:, -1:], np.nan)
    return means
