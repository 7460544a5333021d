"""Additive log-linear fit: an effect of the workload plus one of the column."""

from collections.abc import Sequence

import numpy as np

from fairlead.estimate.cells import Cells
from fairlead.model.arrays import FloatArray

RIDGE = 1e-2
"""keeps effects of which little is known near 0"""


def fit_additive(known: Cells, log_speed: FloatArray, unknown: Cells) -> FloatArray:
    """Return the estimated log speeds of the unknown cells: the sum of their effects.

    Effects of the workload, its model, its partner, and of accelerator, gang and link, each alone
    and all three together: what is unknown of a workload or column is taken from its parts.
    """
    design, wanted = _design(known, known), _design(known, unknown)
    level = float(log_speed.mean())
    normal = design.T @ design + RIDGE * np.eye(design.shape[1])
    effects = np.linalg.solve(normal, design.T @ (log_speed - level))
    estimated: FloatArray = level + wanted @ effects
    return estimated


_EFFECTS = (
    ("model",),
    ("model", "batch"),
    ("partner",),
    ("partner", "partner_batch"),
    ("accelerator",),
    ("gang",),
    ("link",),
    ("accelerator", "gang", "link"),
)
"""columns of cells that have an effect together"""


def _design(known: Cells, cells: Cells) -> FloatArray:
    """Return cells × effects: 1 where a cell has the values of an effect, else 0."""
    return np.hstack([_indicators(known, cells, names) for names in _EFFECTS])


def _indicators(known: Cells, cells: Cells, names: Sequence[str]) -> FloatArray:
    values = np.column_stack([getattr(known, name) for name in names])
    own = np.column_stack([getattr(cells, name) for name in names])
    equal: FloatArray = (own[:, None, :] == np.unique(values, axis=0)).all(axis=2).astype(float)
    return equal
