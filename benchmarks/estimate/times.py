"""Times of completing a large table and of taking one measurement."""

from collections.abc import Iterator
from time import process_time

import numpy as np
from benchmarks.estimate.completion import Figure
from benchmarks.estimate.tables import Measured

from fairlead.estimate.belief import Belief
from fairlead.estimate.factor_model import FactorModel
from fairlead.estimate.gaussian_process import GaussianProcess, Variances, relative_error
from fairlead.estimate.kernels import SPEED_TERMS
from fairlead.model.arrays import FloatArray

WORKLOADS, COLUMNS = 2000, 30
REPEATS = 5


def large_table(seed: int = 0) -> FloatArray:
    """Return log speeds of workloads on columns: three hidden properties and 5 % noise."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0.0, 2.0, (WORKLOADS, 1))
    properties, effects = rng.normal(size=(WORKLOADS, 3)), rng.normal(0.0, 0.3, (3, COLUMNS))
    noise = rng.normal(0.0, 0.05, (WORKLOADS, COLUMNS))
    return level + rng.normal(0.0, 0.7, COLUMNS) + properties @ effects + noise


def times(speeds: Measured) -> Iterator[Figure]:
    """Yield milliseconds of process CPU, the best of several calls, and the completed errors."""
    table = large_table()
    known = np.random.default_rng(1).random(table.shape) < 0.3
    best = np.inf
    for _ in range(REPEATS):
        start = process_time()
        estimate = FactorModel.fit(table, known).complete(table, known)
        best = min(best, 1e3 * (process_time() - start))
    hidden = ~known
    error = relative_error(estimate.median[hidden], np.exp(table[hidden]))
    case = f"{WORKLOADS:,} × {COLUMNS} table, 30 % kept"
    yield Figure(case, "factor model", float(np.median(error)))
    yield Figure(f"{case}, ms", "factor model", best)
    yield Figure(f"measurement among {len(speeds.keys)} cells, ms", "belief", _update_ms(speeds))


def _update_ms(speeds: Measured) -> float:
    """Return the median milliseconds of one measurement of a joint belief about all cells."""
    some = np.arange(0, len(speeds.keys), 10)
    process = GaussianProcess(
        SPEED_TERMS,
        speeds.cells.take(some),
        np.log(speeds.value[some]),
        Variances.default(SPEED_TERMS),
    )
    belief = Belief(*process.joint(speeds.cells))
    spent = []
    for cell, speed in enumerate(speeds.value.tolist()):
        start = process_time()
        belief.measure(cell, speed)
        spent.append(1e3 * (process_time() - start))
    return float(np.median(spent))
