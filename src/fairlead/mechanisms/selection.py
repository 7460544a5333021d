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
    weight: FloatArray, gang: IntArray, free: list[int], taken: list[bool]
) -> tuple[list[int], list[int]]:
    """Assign rows to columns with the greatest total weight; an entry of 0 is forbidden.

    Starts from Algorithm 1 in the order of weights, then moves rows of one device for as long
    as that adds weight, which makes the choice exact where all gangs are 1.
    """
    row, column = weight.nonzero()
    order = (-weight[row, column]).argsort(kind="stable")
    rows, columns = pick(row[order], column[order], gang, free, taken)
    choices = np.bincount(row, minlength=len(weight))
    choices[gang > 1] = 0
    if len(free) == 1 or not (choices > 1).any():
        return rows, columns
    at = np.full(len(weight), -1, dtype=np.int64)
    at[rows] = columns
    exchange = Exchange(weight, choices, at, free)
    exchange.improve()
    at = exchange.assignment(at)
    for r in rows:
        taken[r] = False
    chosen = (at >= 0).nonzero()[0]
    rows = chosen.tolist()
    for r in rows:
        taken[r] = True
    return rows, at[chosen].tolist()


def fill(
    speed: FloatArray, gang: IntArray, free: list[int], taken: list[bool], first: FloatArray
) -> tuple[list[int], list[int]]:
    """Let rows not taken yet use what is still free, each where it runs best of what is left.

    Rows with the greatest ``first`` choose first.
    """
    waiting = (~np.array(taken, dtype=bool)).nonzero()[0]
    if not len(waiting) or not any(free):
        return [], []
    relative = speed[waiting] / np.maximum(speed[waiting].max(axis=1, keepdims=True), 1e-300)
    row, column = ((relative > 0) & (np.array(free) > 0)).nonzero()
    order = np.lexsort((-relative[row, column], row, -first[waiting][row]))
    return pick(waiting[row[order]], column[order], gang, free, taken)
