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
    left = sum(free)
    for r, c, g in zip(row.tolist(), column.tolist(), gang[row].tolist(), strict=True):
        if taken[r] or free[c] < g:
            continue
        taken[r] = True
        free[c] -= g
        left -= g
        rows.append(r)
        columns.append(c)
        if not left:
            break
    return rows, columns


def assign(
    row: IntArray,
    column: IntArray,
    weight: FloatArray,
    gang: IntArray,
    free: list[int],
    taken: list[bool],
) -> tuple[list[int], list[int]]:
    """Choose among (row, column) entries those of the greatest total weight, each row once.

    Starts from Algorithm 1 in the order of weights, then exchanges rows of one device for as
    long as that adds weight, which makes the choice exact where all gangs are 1. Updates
    ``free`` and ``taken``.
    """
    order = (-weight).argsort(kind="stable")
    row, column = row[order], column[order]
    rows, columns = pick(row, column, gang, free, taken)
    choices = np.bincount(row, minlength=len(gang))
    if len(free) == 1 or not np.count_nonzero(choices > 1):
        return rows, columns
    choices[gang > 1] = 0
    at = np.full(len(gang), -1, dtype=np.int64)
    at[rows] = columns
    exchange = Exchange(row, column, weight[order], choices, at, free)
    if exchange.improve():
        for r in rows:
            taken[r] = False
        at = exchange.assignment(at)
        chosen = (at >= 0).nonzero()[0]
        rows, columns = chosen.tolist(), at[chosen].tolist()
        for r in rows:
            taken[r] = True
    return rows, columns


def fill(
    speed: FloatArray, gang: IntArray, free: list[int], taken: list[bool], first: FloatArray
) -> tuple[list[int], list[int]]:
    """Let rows not taken yet use what is still free, each where it runs best of what is left.

    Rows with the greatest ``first`` choose first. Updates ``free`` and ``taken``.
    """
    if all(taken) or not any(free):
        return [], []
    waiting = (~np.array(taken, dtype=bool)).nonzero()[0]
    its_speed = speed[waiting]
    relative = its_speed / np.maximum(its_speed.max(axis=1, keepdims=True), 1e-300)
    row, column = ((relative > 0) & (np.array(free) > 0)).nonzero()
    order = np.lexsort((-relative[row, column], row, -first[waiting][row]))
    return pick(waiting[row[order]], column[order], gang, free, taken)
