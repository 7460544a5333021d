"""Which units run this round: a choice of rows for columns, no row twice, gangs whole."""

import numpy as np

from fairlead.mechanisms.exchange import Exchange
from fairlead.model.arrays import FloatArray, IntArray


def pick(
    row: IntArray, column: IntArray, gang: IntArray, free: list[int], taken: list[bool]
) -> tuple[list[int], list[int]]:
    """Go through (row, column) entries in the order given and take each one that fits.

    This is Gavel's Algorithm 1: an entry is passed over when its row has been taken already (a
    job runs once, line 9) or when fewer devices of its column are free than its gang needs
    (line 7). Updates ``free`` and ``taken``.
    """
    rows: list[int] = []
    columns: list[int] = []
    for r, c, g in zip(row.tolist(), column.tolist(), gang[row].tolist(), strict=True):
        if free[c] >= g and not taken[r]:
            taken[r] = True
            free[c] -= g
            rows.append(r)
            columns.append(c)
    return rows, columns


def assign(
    row: IntArray,
    column: IntArray,
    weight: FloatArray,
    gang: IntArray,
    free: list[int],
    taken: list[bool],
) -> IntArray:
    """Return rows → column, -1 for none, choosing among (row, column) entries by weight.

    Takes entries by Algorithm 1 in the order of their weights. If that leaves devices free
    while rows that want others wait, rows are exchanged for as long as that adds weight, which
    makes the choice one of greatest total weight where all gangs are 1. Updates ``free`` and
    ``taken``.
    """
    order = (-weight).argsort(kind="stable")
    row, column = row[order], column[order]
    rows, columns = pick(row, column, gang, free, taken)
    wanted = np.full(len(gang), -1, dtype=np.int64)
    wanted[rows] = columns
    if len(free) == 1 or not any(free) or len(rows) == len(row):
        return wanted
    waits = np.ones(len(gang), dtype=bool)
    waits[rows] = False
    if not np.count_nonzero(waits[row] & (gang[row] == 1)):
        return wanted
    exchange = Exchange(row, column, weight[order], gang, wanted, free)
    if exchange.improve():
        wanted = exchange.assignment(wanted)
        for r, chosen in enumerate((wanted >= 0).tolist()):
            taken[r] = taken[r] or chosen
        for r in rows:
            taken[r] = bool(wanted[r] >= 0)
    return wanted


def fill(
    speed: FloatArray,
    gang: IntArray,
    free: list[int],
    taken: list[bool],
    owed: FloatArray,
    wanted: IntArray,
) -> None:
    """Let rows not taken yet use what is still free: first those least ahead of their share.

    Of rows that are owed alike, those that run relatively best there come first. Updates
    ``free``, ``taken`` and ``wanted``.
    """
    if all(taken):
        return
    waiting = (~np.array(taken, dtype=bool)).nonzero()[0]
    its_speed = speed[waiting]
    row, column = ((its_speed > 0) & (np.array(free) > 0)).nonzero()
    relative = its_speed[row, column] / its_speed.max(axis=1)[row]
    row = waiting[row]
    order = np.lexsort((row, -relative, -owed[row, column]))
    rows, columns = pick(row[order], column[order], gang, free, taken)
    wanted[rows] = columns
