"""The compared methods: known cells and values in, estimates of the hidden cells out."""

from collections.abc import Sequence

import numpy as np
from benchmarks.estimate.tables import Measured

from fairlead.estimate.baselines.additive import fit_additive
from fairlead.estimate.baselines.matrix_completion import complete_matrix, match_fingerprints
from fairlead.estimate.gaussian_process import Estimate, GaussianProcess, Variances
from fairlead.estimate.kernels import Term
from fairlead.model.arrays import FloatArray, IntArray


def gaussian_process(
    table: Measured,
    kept: IntArray,
    hidden: IntArray,
    terms: Sequence[Term],
    variances: Variances | None = None,
) -> Estimate:
    """Return the estimates of Fairlead's Gaussian process."""
    known = table.cells.take(kept)
    process = GaussianProcess(terms, known, np.log(table.value[kept]), variances)
    return process.predict(table.cells.take(hidden))


def additive(table: Measured, kept: IntArray, hidden: IntArray) -> FloatArray:
    """Return the estimates of the additive log-linear fit."""
    known, unknown = table.cells.take(kept), table.cells.take(hidden)
    return np.exp(fit_additive(known, np.log(table.value[kept]), unknown))


def matrix_completion(
    table: Measured, kept: IntArray, hidden: IntArray, seed: int, *, fingerprints: bool = False
) -> FloatArray:
    """Return the estimates of Gavel's method: workloads × (accelerator, gang, placement, partner).

    Speeds are normalised by the largest known one of their workload, since Gavel's are those of
    packed jobs over the same jobs alone, within 0 and 1. A workload without any known speed gets
    the mean of its columns.
    """
    workloads = sorted({key.workload for key in table.keys})
    columns = sorted({_column(table, i) for i in range(len(table.keys))})
    row = np.array([workloads.index(key.workload) for key in table.keys])
    place = {column: j for j, column in enumerate(columns)}
    column = np.array([place[_column(table, i)] for i in range(len(table.keys))])
    matrix = np.zeros((len(workloads), len(columns)))
    known = np.zeros(matrix.shape, dtype=bool)
    matrix[row[kept], column[kept]] = table.value[kept]
    known[row[kept], column[kept]] = True
    top = matrix.max(axis=1)
    scale = np.where(top > 0, top, np.median(table.value[kept]))[:, None]
    rng = np.random.default_rng(seed)
    completed = complete_matrix(matrix / scale, known, rng=rng)
    if fingerprints:
        completed = match_fingerprints(completed, known)
    estimated: FloatArray = (completed * scale)[row[hidden], column[hidden]]
    return estimated


def _column(table: Measured, i: int) -> tuple[str, int, str, str]:
    key = table.keys[i]
    return key.accelerator, key.gang, key.placement, key.partner or ""
