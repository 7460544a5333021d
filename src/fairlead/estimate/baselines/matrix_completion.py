"""Gavel's completion of a matrix of normalised speeds, and its fingerprints (§6).

The artifact's method: probabilistic matrix factorisation by alternating least squares. A row of
the completed matrix is a workload's fingerprint; the speeds of the closest reference workload
stand for those that are unknown.
"""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray

RANK = 10
RIDGE = 1e-2
MAX_SWEEPS = 100
TOLERANCE = 1e-3
"""mean change of an entry below which the sweeps end"""


def complete_matrix(
    matrix: FloatArray, known: BoolArray, *, rng: np.random.Generator, rank: int = RANK
) -> FloatArray:
    """Return the matrix with its unknown entries estimated, within 0 and 1.

    Minimises the squared error on known entries plus RIDGE times the squared factors.
    """
    weight = known.astype(float)
    rows = rng.standard_normal((matrix.shape[0], rank))
    columns = rng.standard_normal((matrix.shape[1], rank))
    last = rows @ columns.T
    for _ in range(MAX_SWEEPS):
        rows = _least_squares(columns, matrix, weight)
        columns = _least_squares(rows, matrix.T, weight.T)
        product = rows @ columns.T
        change = float(np.linalg.norm(product - last)) / matrix.size
        last = product
        if change < TOLERANCE:
            break
    return np.where(known, matrix, np.clip(last, 0.0, 1.0))


def _least_squares(factors: FloatArray, matrix: FloatArray, weight: FloatArray) -> FloatArray:
    """Return for each row of the matrix the factors that fit its known entries."""
    rank = factors.shape[1]
    squares = np.einsum("ij,jk,jl->ikl", weight, factors, factors, optimize=True)
    squares += RIDGE * np.eye(rank)
    right = (weight * matrix) @ factors
    solved: FloatArray = np.linalg.solve(squares, right[:, :, None])[:, :, 0]
    return solved


def match_fingerprints(completed: FloatArray, known: BoolArray) -> FloatArray:
    """Return the matrix with unknown entries of each row taken from the row closest to it.

    Closest by the cosine between completed rows. Entries that were unknown in the closest row,
    too, are its completed ones.
    """
    length = np.linalg.norm(completed, axis=1)
    cosine = (completed @ completed.T) / np.maximum(np.outer(length, length), 1e-12)
    np.fill_diagonal(cosine, -np.inf)
    closest = cosine.argmax(axis=1)
    return np.where(known, completed, completed[closest])
