"""Timeline of devices in columns of time: the job that held each device longest in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.live.timeline.intervals import ENDINGS, Intervals
from fairlead.model.arrays import BoolArray, FloatArray, IntArray

NONE, HIDDEN = -1, -2
"""in place of a job: no job, a job that the reader may not see"""
MARKS = ("preempted", "moved", "failed", "lost")
"""marked ends of leases, the most severe last; ``moved``: it continued on other devices"""
_PREEMPTED, _FAILED, _LOST = (ENDINGS.index(name) for name in ("preempted", "failed", "lost"))


class Window(NamedTuple):
    """Columns of equal length from one time to another, for a range of devices."""

    begin: float
    end: float
    columns: int
    devices: range

    @property
    def column_s(self) -> float:
        """Length of a column."""
        return (self.end - self.begin) / self.columns


@dataclass(frozen=True, slots=True, eq=False)
class DeviceColumns:
    """Runs of columns in which one job held a device, and marks at ends of leases."""

    run_device: IntArray
    run_first: IntArray
    run_end: IntArray
    """column after the last"""
    run_job: IntArray
    """index in ``Intervals.jobs``, or HIDDEN"""
    mark_device: IntArray
    mark_column: IntArray
    mark_kind: IntArray
    """index in MARKS"""
    mark_job: IntArray


class JobsInWindow(NamedTuple):
    """Per job of a window, on all devices."""

    device_s: FloatArray
    preemptions: IntArray
    failures: IntArray


def device_columns(intervals: Intervals, visible: BoolArray, window: Window) -> DeviceColumns:
    """Return the columns of the window's devices; jobs that are not ``visible`` are hidden."""
    mark = _marked(intervals)
    size = intervals.size
    row = np.repeat(np.arange(len(intervals)), size)
    shown = (intervals.device >= window.devices.start) & (intervals.device < window.devices.stop)
    shown &= (intervals.ended_at >= window.begin)[row] & (intervals.began_at < window.end)[row]
    row, device = row[shown], intervals.device[shown] - window.devices.start
    job = np.where(visible, np.arange(len(visible)), HIDDEN)[intervals.job[row]]
    grid = _longest(
        device,
        job,
        (intervals.began_at[row] - window.begin) / window.column_s,
        (intervals.ended_at[row] - window.begin) / window.column_s,
        (len(window.devices), window.columns),
    )
    marks = _marks(device, job, mark[row], intervals.ended_at[row], window)
    return DeviceColumns(*_runs(grid), *marks)


def jobs_in(intervals: Intervals, window: Window) -> JobsInWindow:
    """Return the device-seconds, preemptions and failures of each job in a window."""
    jobs, job = len(intervals.jobs), intervals.job
    held_s = np.minimum(intervals.ended_at, window.end) - np.maximum(
        intervals.began_at, window.begin
    )
    ended = (intervals.ended_at >= window.begin) & (intervals.ended_at < window.end)
    failed = np.isin(intervals.ending, (_FAILED, _LOST))
    return JobsInWindow(
        np.bincount(job, np.maximum(held_s, 0.0) * intervals.size, jobs).astype(np.float64),
        np.bincount(job, ended & (intervals.ending == _PREEMPTED), jobs).astype(np.int64),
        np.bincount(job, ended & failed, jobs).astype(np.int64),
    )


def _longest(
    device: IntArray, job: IntArray, begin: FloatArray, end: FloatArray, shape: Sequence[int]
) -> IntArray:
    """Return devices × columns → job with the longest interval in the column."""
    columns = shape[1]
    grid = np.full(shape[0] * columns, NONE, dtype=np.int64)
    begin, end = np.clip(begin, 0.0, columns), np.clip(end, 0.0, columns)
    first = np.minimum(np.floor(begin), columns - 1).astype(np.int64)
    count = np.maximum(np.ceil(end).astype(np.int64) - first, 1)
    offset = np.concatenate([[0], np.cumsum(count)])
    row = np.repeat(np.arange(len(device)), count)
    column = first[row] + np.arange(int(offset[-1])) - offset[:-1][row]
    overlap = np.minimum(end[row], column + 1) - np.maximum(begin[row], column)
    # Of several assignments to a cell the last one stays.
    order = np.argsort(overlap, kind="stable")
    grid[(device[row] * columns + column)[order]] = job[row][order]
    return grid.reshape(tuple(shape))


def _runs(grid: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return device, first column, end and job of each run of equal jobs."""
    begins = np.ones(grid.shape, dtype=bool)
    begins[:, 1:] = grid[:, 1:] != grid[:, :-1]
    device, first = begins.nonzero()
    flat = device * grid.shape[1] + first
    end = np.append(flat[1:], grid.size) - device * grid.shape[1]
    job = grid[device, first]
    held = job != NONE
    return device[held], first[held], end[held], job[held]


def _marked(intervals: Intervals) -> IntArray:
    """Return rows → index in MARKS, -1 for an end that is not marked."""
    mark = np.full(len(intervals), -1)
    for name in ("preempted", "failed", "lost"):
        mark[intervals.ending == ENDINGS.index(name)] = MARKS.index(name)
    order = np.lexsort((intervals.began_at, intervals.job))
    before, after = order[:-1], order[1:]
    resumed = (intervals.job[before] == intervals.job[after]) & (mark[before] == 0)
    places = _hashes(intervals)
    mark[before[resumed & (places[before] != places[after])]] = MARKS.index("moved")
    return mark


def _hashes(intervals: Intervals) -> NDArray[np.uint64]:
    """Return rows → number that is the same for the same set of devices."""
    mixed = (intervals.device.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    hashes: NDArray[np.uint64] = total[intervals.start[1:]] - total[intervals.start[:-1]]
    return hashes


def _marks(
    device: IntArray, job: IntArray, mark: IntArray, ended_at: FloatArray, window: Window
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return device, column, mark and job of the most severe mark of each cell."""
    inside = (mark >= 0) & (ended_at >= window.begin) & (ended_at < window.end) & (job != HIDDEN)
    device, job, mark = device[inside], job[inside], mark[inside]
    column = np.floor((ended_at[inside] - window.begin) / window.column_s).astype(np.int64)
    column = np.minimum(column, window.columns - 1)
    order = np.lexsort((-mark, column, device))
    cell = (device * window.columns + column)[order]
    worst = order[np.unique(cell, return_index=True)[1]]
    return device[worst], column[worst], mark[worst], job[worst]
