"""Accelerators believed equally fast: no job moves between them without need.

Where accelerators are equal for all jobs, many allocations are equally good. A solver often gives
equal jobs equal parts of each accelerator, and rounds that realise these parts make the jobs
change places for ever. Of the equally good allocations, this chooses one that lets jobs stay.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot

_TINY = 1e-9


def keep_in_place(snap: Snapshot, share: FloatArray) -> FloatArray:
    """Return the shares with every job's time on equal accelerators where it already runs.

    A job's time on all of them together stays the same, and so does the use of each accelerator
    at most its devices. Jobs that do not run yet get one accelerator where there is room. The
    shares stay as they are if whole gangs do not fit so, and on accelerators with quotas.
    """
    for columns in _equal_columns(snap):
        moved = _moved(snap, share, columns)
        share = share if moved is None else moved
    return share


def _equal_columns(snap: Snapshot) -> list[list[int]]:
    """Return the groups of two or more accelerators that are equal for every job."""
    count = len(snap.capacity)
    if count < 2 or not len(snap.job):
        return []
    first = snap.profiles.speed[snap.profile[0]].tolist()
    if len(set(first)) == count:
        return []  # the usual case, quickly
    speed, gangs = snap.speed, snap.gang_on
    has_quota = _with_quotas(snap)
    groups: dict[bytes, list[int]] = {}
    for j in range(count):
        if has_quota[j] or not speed[:, j].any():
            continue
        gang = gangs[:, j if gangs.shape[1] > 1 else 0]
        price = np.array([_price(snap, j)])
        key = speed[:, j].tobytes() + gang.tobytes() + price.tobytes()
        groups.setdefault(key, []).append(j)
    return [columns for columns in groups.values() if len(columns) > 1]


def _with_quotas(snap: Snapshot) -> list[bool]:
    """Return accelerators → whether some tenant has a guarantee or limit there."""
    named = {name for tenant in snap.tenants for name in (*tenant.guarantee, *tenant.limit)}
    return [name in named for name in snap.cluster.accelerators]


def _price(snap: Snapshot, column: int) -> float:
    detail = snap.cluster.details.get(snap.cluster.accelerators[column])
    price = None if detail is None else detail.usd_per_hour
    return -1.0 if price is None else price


def _moved(snap: Snapshot, share: FloatArray, columns: Sequence[int]) -> FloatArray | None:
    """Return the shares after moving time among equal accelerators; None if gangs do not fit."""
    time = np.maximum(share[:, columns], 0.0).sum(axis=1)
    gangs = snap.gang_on
    gang = np.broadcast_to(gangs, share.shape)[:, columns[0]]
    room = {j: float(snap.capacity[j]) for j in columns}
    moved = share.copy()
    moved[:, columns] = 0.0
    on = snap.on.tolist()
    rows = (time > 0).nonzero()[0].tolist()
    stays = [row for row in rows if on[row] in room]
    # Those that run get their places first, the longest shares before all.
    for row in sorted(stays, key=lambda row: (-time[row], row)):
        _take(moved, row, on[row], float(time[row]), int(gang[row]), room)
    for row in rows:
        left = float(time[row] - moved[row, columns].sum())
        size = int(gang[row])
        fits = [j for j in columns if snap.capacity[j] >= size]
        # The accelerator with just enough room for all of it, or else those with most room.
        whole = [j for j in fits if room[j] + _TINY >= left * size]
        order = [min(whole, key=lambda j: (room[j], j))] if whole else []
        for j in order or sorted(fits, key=lambda j: (-room[j], j)):
            left -= _take(moved, row, j, left, size, room)
        if left > _TINY:
            return None
    return moved


def _take(
    moved: FloatArray, row: int, column: int, time: float, gang: int, room: dict[int, float]
) -> float:
    """Give a job at most this part of time on an accelerator; return the part given."""
    part = min(time, max(room[column], 0.0) / gang)
    if part <= _TINY:
        return 0.0
    moved[row, column] += part
    room[column] -= part * gang
    return part
