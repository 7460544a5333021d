"""Chooses the gangs of a round by a dynamic program over the devices that they compete for.

Taking entries one by one leaves devices idle beside gangs that do not fit into them, although
other gangs together would. The dynamic program finds the rows of greatest total weight, counted
for every device, that fit. It is for small clusters: its states are the combinations of devices
in use.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.model.arrays import FloatArray, IntArray

_NONE = -1
_MIN_GAIN = 1e-9
_MAX_STATES = 4096
"""greatest number of combinations of devices in use; three columns may have 15 devices each"""

Option = tuple[int, int, float]
"""column, devices, weight of all devices together"""


def has_few_states(devices: Iterable[int]) -> bool:
    """Return whether the dynamic program is fast for columns with these numbers of devices."""
    return prod(size + 1 for size in devices) <= _MAX_STATES


def choose_by_knapsack(
    entries: CandidateEntries, gang: IntArray, free: list[int], wanted: IntArray
) -> None:
    """Choose the rows of greatest total weight that fit; each counts for all its devices.

    ``gang`` is entries → devices, ``free`` columns → devices left and ``wanted`` rows → column,
    below 0 for none; the last two are updated. Rows with a column, or below -1, stay so.
    """
    for row, column, devices in best_rows(_options(entries, gang, free, wanted), free):
        wanted[row] = column
        free[column] -= devices


def _options(
    entries: CandidateEntries, gang: IntArray, free: list[int], wanted: IntArray
) -> dict[int, list[Option]]:
    """Return rows without a column → where each may run.

    Of rows with the same devices in a column only those of greatest weight are kept, as many as
    could run in all columns together: one of them would be left for any other.
    """
    order = np.argsort(-entries.weight, kind="stable")
    order = order[wanted[entries.row[order]] == _NONE]
    seen: dict[tuple[int, int], int] = {}
    most: dict[int, int] = {}
    options: dict[int, list[Option]] = {}
    for row, column, size, weight in zip(
        entries.row[order].tolist(),
        entries.column[order].tolist(),
        gang[order].tolist(),
        entries.weight[order].tolist(),
        strict=True,
    ):
        if size not in most:
            most[size] = sum(devices // size for devices in free)
        count = seen[column, size] = seen.get((column, size), 0) + 1
        if size <= free[column] and count <= most[size] and weight > 0:
            options.setdefault(row, []).append((column, size, weight * size))
    return options


def best_rows(options: dict[int, list[Option]], free: list[int]) -> list[tuple[int, int, int]]:
    """Return the (row, column, devices) of greatest total weight that fit into free devices."""
    best: FloatArray = np.zeros([size + 1 for size in free])
    """devices in use at most, of each column → greatest weight"""
    columns_of: list[IntArray] = []
    for choices in options.values():
        after, chosen = best.copy(), np.full(best.shape, _NONE)
        for column, size, weight in choices:
            head = (slice(None),) * column
            weight_with = best[*head, : best.shape[column] - size] + weight
            more = weight_with > after[*head, size:] + _MIN_GAIN
            np.copyto(after[*head, size:], weight_with, where=more)
            np.copyto(chosen[*head, size:], column, where=more)
        columns_of.append(chosen)
        best = after
    rows: list[tuple[int, int, int]] = []
    left = list(free)
    for (row, choices), column_at in zip(
        reversed(options.items()), reversed(columns_of), strict=True
    ):
        column = int(column_at[tuple(left)])
        if column != _NONE:
            size = next(devices for at, devices, _ in choices if at == column)
            left[column] -= size
            rows.append((row, column, size))
    return rows
