"""The shortest schedule of a few gangs: which of them run together, and for how long.

The shares of a linear program over device time may let gangs run at once that do not fit beside
each other. Here a configuration is a set of whole gangs that do, and the linear program decides
for how long each configuration runs. Its columns are generated: a dynamic program finds the
configuration that is worth most at the prices of the last solution (Gilmore and Gomory 1961).
"""

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from fairlead.mechanisms._rounds.knapsack import Option, best_rows
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.solve.linear import INFINITY, new_highs, rerun_highs

_TOLERANCE = 1e-3
"""greatest part of the cost by which a schedule may exceed the least"""
_MAX_CONFIGURATIONS = 300
"""a guard; the schedule found by then is used"""
_LEAST_PRICE = 1e-9


class Configuration(NamedTuple):
    """Gangs that run at once, and for how long."""

    time: float
    rows: Sequence[int]
    columns: Sequence[int]
    """of these rows"""

    def use(self, value: FloatArray) -> float:
        """Return the sum of ``value`` (rows × columns) over its gangs."""
        return float(value[list(self.rows), list(self.columns)].sum())


def shortest_schedule(
    rate: FloatArray, gang: IntArray, devices: list[int], value: FloatArray, enough: float
) -> list[Configuration] | None:
    """Return configurations in which all gangs end in the least time; None if ``enough`` will do.

    None also where the solver finds none, because the numbers are out of its range.
    ``rate`` is rows × columns → part of the row done in a unit of time, 0 where it cannot run,
    ``gang`` rows × columns → devices, ``value`` rows × columns → cost of running there for a unit
    of time, small beside 1, the cost of time itself.
    """
    count = len(rate)
    highs = new_highs(presolve=False)
    none = np.zeros(0, np.int32)
    highs.addRows(
        count, np.ones(count), np.full(count, INFINITY), 0, np.zeros(count, np.int32), none, none
    )
    chosen: list[Configuration] = []

    def add(configuration: Configuration) -> None:
        _, rows, columns = configuration
        chosen.append(configuration)
        made = rate[list(rows), list(columns)]
        cost = 1.0 + configuration.use(value)
        highs.addCol(cost, 0.0, INFINITY, len(rows), np.array(rows, np.int32), made)

    for row, column in enumerate(rate.argmax(axis=1).tolist()):
        add(Configuration(0.0, [row], [column]))
    bound = 0.0
    while True:
        if rerun_highs(highs) != highspy.HighsModelStatus.kOptimal:
            return None
        solution = highs.getSolution()
        times = [max(time, 0.0) for time in solution.col_value]
        if sum(times) <= enough:
            return None
        price = np.array(solution.row_dual)
        best, worth = _best_configuration(price[:, None] * rate - value, gang, devices)
        bound = max(bound, float(price.sum()) / max(worth, 1.0))
        cost = highs.getInfo().objective_function_value
        if cost <= bound * (1 + _TOLERANCE) or len(chosen) > _MAX_CONFIGURATIONS:
            break
        add(best)
    return [made._replace(time=time) for made, time in zip(chosen, times, strict=True) if time]


def _best_configuration(
    worth: FloatArray, gang: IntArray, devices: list[int]
) -> tuple[Configuration, float]:
    """Return the configuration of greatest total ``worth`` (rows × columns), and that worth."""
    options: dict[int, list[Option]] = {}
    fits = (worth > _LEAST_PRICE) & (gang <= np.array(devices))
    for row, column in zip(*(axis.tolist() for axis in fits.nonzero()), strict=True):
        option = column, int(gang[row, column]), float(worth[row, column])
        options.setdefault(row, []).append(option)
    chosen = best_rows(options, devices)
    rows, columns = [row for row, _, _ in chosen], [column for _, column, _ in chosen]
    best = Configuration(0.0, rows, columns)
    return best, best.use(worth)
