"""Covariances of log speeds: sums of products of simple factors.

Every term states one way in which cells resemble each other, such as "the same model on the same
accelerator"; its variance says how much of the differences between speeds it explains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.estimate.cells import Cells
from fairlead.model.arrays import FloatArray

BATCH_LENGTH = 2.5
"""doublings of the batch size over which a speed stays similar"""
GANG_LENGTH = 1.5
"""doublings of the gang over which its efficiency stays similar"""

Factor = Callable[[Cells, Cells], FloatArray]
"""two lists of cells → similarity of each pair"""


def _same(name: str) -> Factor:
    """Return the factor that is 1 where cells share a code, else 0."""

    def factor(a: Cells, b: Cells) -> FloatArray:
        equal: FloatArray = np.equal.outer(getattr(a, name), getattr(b, name)).astype(float)
        return equal

    return factor


def _near(name: str, length: float) -> Factor:
    """Return the factor exp(−(distance / length)² / 2)."""

    def factor(a: Cells, b: Cells) -> FloatArray:
        distance = np.subtract.outer(getattr(a, name), getattr(b, name)) / length
        near: FloatArray = np.exp(-0.5 * distance**2)
        return near

    return factor


def _linear(name: str) -> Factor:
    """Return the covariance of a straight line with a slope of unit variance."""

    def factor(a: Cells, b: Cells) -> FloatArray:
        of, to = getattr(a, name), getattr(b, name)
        product: FloatArray = np.outer(of, to) if of.ndim == 1 else of @ to.T
        return product

    return factor


FACTORS: Mapping[str, Factor] = {
    "model": _same("model"),
    "batch": _near("batch", BATCH_LENGTH),
    "batch slope": _linear("batch"),
    "accelerator": _same("accelerator"),
    "sheet slope": _linear("features"),
    "gang": _same("gang"),
    "near gang": _near("gang", GANG_LENGTH),
    "gang slope": _linear("gang"),
    "link": _same("link"),
    "partner": _same("partner"),
    "partner batch": _near("partner_batch", BATCH_LENGTH),
    "partner batch slope": _linear("partner_batch"),
}


@dataclass(frozen=True, slots=True)
class Term:
    """A product of factors with its variance."""

    factors: tuple[str, ...]
    variance: float
    """of the natural logarithm of speeds, before any table was seen"""


def _term(variance: float, *factors: str) -> Term:
    return Term(factors, variance)


SPEED_TERMS = (
    _term(9.0),
    _term(1.0, "model"),
    _term(0.1, "batch slope"),
    _term(0.05, "model", "batch slope"),
    _term(0.02, "model", "batch"),
    _term(0.1, "accelerator"),
    _term(0.01, "model", "sheet slope"),
    _term(0.1, "gang slope"),
    _term(0.05, "link", "near gang"),
    _term(0.05, "accelerator", "link", "near gang"),
    _term(0.05, "accelerator", "link", "gang"),
    _term(0.05, "model", "accelerator"),
    _term(0.02, "accelerator", "batch slope"),
    _term(0.02, "model", "accelerator", "batch slope"),
    _term(0.05, "model", "link", "near gang"),
    _term(0.02, "model", "link", "near gang", "batch"),
    _term(0.03, "model", "accelerator", "link", "near gang", "batch"),
    _term(0.03, "model", "accelerator", "link", "gang", "batch"),
)
"""terms of the speed of a gang alone, by model, batch size, accelerator, gang and placement"""

PAIR_TERMS = (
    _term(1.0),
    _term(0.1, "model"),
    _term(0.1, "partner"),
    _term(0.1, "model", "batch"),
    _term(0.1, "partner", "partner batch"),
    _term(0.02, "batch slope"),
    _term(0.02, "partner batch slope"),
    _term(0.05, "accelerator"),
    _term(0.05, "model", "accelerator"),
    _term(0.05, "partner", "accelerator"),
    _term(0.05, "model", "batch", "accelerator"),
    _term(0.05, "partner", "partner batch", "accelerator"),
    _term(0.05, "model", "partner"),
    _term(0.05, "model", "partner", "batch", "partner batch"),
    _term(0.05, "model", "partner", "batch", "partner batch", "accelerator"),
)
"""terms of the part of its speed that a packed workload keeps beside a partner"""


def matrices(terms: Sequence[Term], a: Cells, b: Cells) -> Iterator[FloatArray]:
    """Yield the covariance of each term for a variance of 1, as rows of ``a`` × rows of ``b``."""
    used = {name for term in terms for name in term.factors}
    factors = {name: FACTORS[name](a, b) for name in sorted(used)}
    for term in terms:
        product = np.ones((len(a), len(b)))
        for name in term.factors:
            product = product * factors[name]
        yield product


def covariance(terms: Sequence[Term], variances: FloatArray, a: Cells, b: Cells) -> FloatArray:
    """Return the covariance of two lists of cells."""
    total = np.zeros((len(a), len(b)))
    for variance, matrix in zip(variances, matrices(terms, a, b), strict=True):
        total += variance * matrix
    return total


def diagonal(terms: Sequence[Term], variances: FloatArray, cells: Cells) -> FloatArray:
    """Return the variance of each cell."""
    total = np.zeros(len(cells))
    for variance, term in zip(variances, terms, strict=True):
        product = np.ones(len(cells))
        for name in term.factors:
            product = product * _on_diagonal(name, cells)
        total += variance * product
    return total


def _on_diagonal(name: str, cells: Cells) -> FloatArray:
    columns = {
        "batch slope": cells.batch[:, None],
        "sheet slope": cells.features,
        "gang slope": cells.gang[:, None],
        "partner batch slope": cells.partner_batch[:, None],
    }
    if name not in columns:
        return np.ones(len(cells))
    square: FloatArray = (columns[name] ** 2).sum(axis=1)
    return square
