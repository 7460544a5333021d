"""Makes room for gangs that wait: device time owed to a gang against that of smaller jobs.

Algorithm 1 takes entries one by one, so that a single small job of greater weight keeps out a gang
that needs all devices of a column, round after round. Here an entry counts its weight for every
device: a gang replaces entries of least weight on the devices it lacks if it counts more than they
do together. So small jobs are gathered into the rounds in which the gang does not run.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.model.arrays import IntArray

_NONE = -1
_MIN_GAIN = 1e-9


def make_room_for_gangs(
    entries: CandidateEntries, gang: IntArray, free: list[int], wanted: IntArray
) -> bool:
    """Run waiting gangs in place of rows that count less together; return whether any does.

    ``gang`` is entries → devices, ``free`` columns → devices left and ``wanted`` rows → column,
    below 0 for none; the last two are updated.
    """
    waits = (gang > 1) & (wanted[entries.row] == _NONE)
    waiting = waits.nonzero()[0]
    if not len(waiting):
        return False
    order = waiting[np.argsort(-(entries.weight * gang)[waiting], kind="stable")]
    runs = (wanted[entries.row] == entries.column).nonzero()[0]
    running: list[list[int]] = [runs[entries.column[runs] == c].tolist() for c in range(len(free))]
    devices, weight = gang.tolist(), entries.weight.tolist()
    moved = False
    for entry in order.tolist():
        row, column = int(entries.row[entry]), int(entries.column[entry])
        if wanted[row] != _NONE:
            continue
        out = entries_to_replace(entry, free[column], running[column], devices, weight)
        if out is None:
            continue
        for other in out:
            wanted[entries.row[other]] = _NONE
            free[column] += devices[other]
            running[column].remove(other)
        wanted[row] = column
        free[column] -= devices[entry]
        running[column].append(entry)
        moved = True
    return moved


def entries_to_replace(
    entry: int, free: int, running: Iterable[int], gang: Sequence[int], weight: Sequence[float]
) -> list[int] | None:
    """Return the running entries of a column that make way for ``entry``; None if it must wait.

    They are those of least weight on the devices that it lacks besides the ``free`` ones.
    """
    lacking = gang[entry] - free
    out: list[int] = []
    held = 0
    for other in sorted(running, key=lambda e: (weight[e], -e)):
        if held >= lacking:
            break
        out.append(other)
        held += gang[other]
    if held < lacking:
        return None
    for other in reversed(out.copy()):  # the weightiest whose devices are not needed after all
        if held - gang[other] >= lacking:
            out.remove(other)
            held -= gang[other]
    lost = sum(weight[other] * gang[other] for other in out)
    return out if lost < weight[entry] * gang[entry] - _MIN_GAIN else None
