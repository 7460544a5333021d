"""Reserves devices for long gangs where short jobs first would delay the last job to end.

Short jobs first costs the makespan nothing as long as the long gangs that wait can still run one
after the other in time. Once they cannot, they run by their shortest schedule.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.mechanisms._gangs.schedule import Configuration, shortest_schedule
from fairlead.mechanisms._rounds.urgency import relative_speed
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot

_MAX_LONG = 8
"""gangs of the longest time, and as many of the most device time, that are scheduled"""
_SLACK = 0.01
"""part of the shortest schedule that short jobs may cost"""
_USE_COST = 0.22
"""cost of the whole cluster over that of time, so that schedules leave devices to short jobs"""
_NEGLIGIBLE = 1e-5
"""part of the longest job's time up to which a job is ignored, e.g. one that is about to exit"""


def reserve_for_long_gangs(
    snap: Snapshot, share: FloatArray, ends_at: float, min_s: float
) -> tuple[FloatArray, float]:
    """Return the shares with long gangs in their places, and the latest end that is aimed at.

    ``ends_at`` is that end as returned before, 0 where none holds for these jobs. While all long
    gangs can end by then, the shares stay as they are. ``min_s`` is the time for which they
    will stand: configurations of that length are preferred. Without a fluid makespan, as where a
    long job has no share, nothing is reserved.
    """
    gang = np.broadcast_to(snap.gang_on, share.shape)
    rate = np.where(gang <= snap.capacity, snap.speed, 0.0) / snap.steps_left[:, None]
    runs = (rate.max(axis=1, initial=0.0) > 0).nonzero()[0]
    if not len(runs):
        return share, ends_at
    alone_s = 1.0 / rate[runs].max(axis=1)
    longest_s = float(alone_s.max())
    is_long = alone_s > _NEGLIGIBLE * longest_s
    runs, alone_s = runs[is_long], alone_s[is_long]
    least = float((share[runs] * rate[runs]).sum(axis=1).min())
    if least * longest_s < _NEGLIGIBLE:
        return share, ends_at
    fluid_s = 1.0 / least
    rows = runs[_longest(alone_s, gang[runs].min(axis=1))]
    devices: list[int] = snap.capacity.tolist()
    value = relative_speed(snap.speed).mean(axis=0)
    value = gang[rows] * (_USE_COST * value / max(float((value * snap.capacity).sum()), 1e-300))
    is_new = not ends_at
    enough_s = fluid_s if is_new else ends_at - snap.starts_at
    schedule = shortest_schedule(
        rate[rows] * fluid_s, gang[rows], devices, value, enough_s / fluid_s
    )
    if is_new:
        total = 1.0 if schedule is None else sum(part.time for part in schedule)
        return share, snap.starts_at + (1 + _SLACK) * total * fluid_s
    if schedule is None:
        return share, ends_at
    first = _first(schedule, value, min_s / fluid_s)
    reserved = share.copy()
    reserved[rows] = 0.0
    reserved[rows[list(first.rows)], list(first.columns)] = 1.0
    return reserved, ends_at


def _longest(alone: FloatArray, gang: IntArray) -> IntArray:
    """Return the rows with the most time or device time left, ascending."""
    by_time = (-alone).argsort(kind="stable")[:_MAX_LONG]
    by_device_time = (-alone * gang).argsort(kind="stable")[:_MAX_LONG]
    return np.union1d(by_time, by_device_time)


def _first(schedule: Sequence[Configuration], value: FloatArray, least: float) -> Configuration:
    """Return the configuration that leaves most to short jobs, of those that last long enough."""
    least = min(least, max(part.time for part in schedule))
    return min((part for part in schedule if part.time >= least), key=lambda p: p.use(value))
