"""Algorithm 1 of Gavel: the most urgent units that fit, no job twice."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


def pick(
    row: IntArray, column: IntArray, gang: IntArray, free: list[int], taken: list[bool]
) -> tuple[list[int], list[int]]:
    """Go through (row, column) entries in the order given and take each one that fits.

    An entry is passed over when its row has been taken already (a job runs once, Algorithm 1
    line 9) or when fewer devices of its column are free than its gang needs (line 7). Updates
    ``free`` and ``taken``.
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


def fill(
    speed: FloatArray, gang: IntArray, free: list[int], taken: list[bool], first: FloatArray
) -> tuple[list[int], list[int]]:
    """Let rows not taken yet use what is still free, each where it runs best of what is left.

    Rows with the greatest ``first`` choose first.
    """
    waiting = np.flatnonzero(~np.array(taken, dtype=bool))
    if not len(waiting) or not any(free):
        return [], []
    relative = speed[waiting] / np.maximum(speed[waiting].max(axis=1, keepdims=True), 1e-300)
    open_columns = np.array(free) > 0
    row, column = np.nonzero((relative > 0) & open_columns)
    order = np.lexsort((-relative[row, column], row, -first[waiting][row]))
    return pick(waiting[row[order]], column[order], gang, free, taken)
