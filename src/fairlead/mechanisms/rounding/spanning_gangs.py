"""Gangs that span accelerators, and the workers that wait there for slower ones (OEF §4.4)."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fairlead.mechanisms.rounding.apportionment import Apportionment
from fairlead.model.arrays import IntArray
from fairlead.model.snapshot import Snapshot


def span_idle(
    snap: Snapshot, free: list[int], waiting: Iterable[int]
) -> dict[int, dict[int, int]]:
    """Return rows → accelerator → devices, of gangs that use up what no one accelerator can give.

    Each takes the fastest accelerators that suffice together, and of these as many devices as
    possible of the slowest, which decides its speed: so the fewest workers wait for others.
    ``waiting`` are rows in the order in which they should run; ``free`` is used up.
    """
    spans: dict[int, dict[int, int]] = {}
    gang = snap.gang
    for row in waiting:
        if gang[row] == 1:
            continue
        size, speed = int(gang[row]), snap.profiles.speed[snap.profile[row]]
        usable = [j for j in np.argsort(-speed, kind="stable").tolist() if speed[j] and free[j]]
        room = np.cumsum([free[j] for j in usable])
        if not len(room) or room[-1] < size:
            continue
        counts: dict[int, int] = {}
        for j in reversed(usable[: int(np.searchsorted(room, size)) + 1]):
            count = min(free[j], size - sum(counts.values()))
            if count:
                counts[j] = count
                free[j] -= count
        spans[row] = counts
    return spans


def span_own(round_: Apportionment) -> dict[int, dict[int, int]]:
    """Return rows → accelerator → devices, where gangs use what their tenants have of each.

    The paper's own way: devices are rounded one by one, regardless of gangs. A virtual tenant
    with too few for its gang gets none (§4.3). Unused devices go back to ``round_.free``, and
    stay owed.
    """
    single = replace(
        round_,
        due=round_.due.copy(),
        gang=[1] * len(round_.gang),
        early=[False] * len(round_.free),
        waiting=[
            [-1] * (size * len(rows))
            for size, rows in zip(round_.gang, round_.waiting, strict=True)
        ],
        free=list(round_.free),
        picked=[],
    )
    single.serve()
    real = np.zeros(round_.due.shape, dtype=np.int64)
    for i, _, j in single.picked:
        real[i, j] += 1
    spans: dict[int, dict[int, int]] = {}
    for i, (gang, rows) in enumerate(zip(round_.gang, round_.waiting, strict=True)):
        for _ in range(int(real[i].sum()) // gang):
            counts = spans[rows.pop()] = _own_devices(real[i], gang)
            for j, count in counts.items():
                real[i, j] -= count
                round_.due[i, j] -= count
                round_.free[j] -= count
    return spans


def _own_devices(real: IntArray, size: int) -> dict[int, int]:
    """Return devices for a gang: of the one accelerator it fits best, else of as few as can be."""
    enough = (real >= size).nonzero()[0]
    if len(enough):
        return {int(enough[real[enough].argmin()]): size}
    counts: dict[int, int] = {}
    for j in np.argsort(-real, kind="stable").tolist():
        count = min(int(real[j]), size - sum(counts.values()))
        if count:
            counts[j] = count
    return counts
