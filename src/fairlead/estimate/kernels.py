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


def _terms(variances: Mapping[str, float]) -> tuple[Term, ...]:
    """Return the terms of products such as ``model × batch``; an empty product is 1."""
    return tuple(
        Term(tuple(product.split(" × ")) if product else (), variance)
        for product, variance in variances.items()
    )


SPEED_TERMS = _terms(
    {
        "": 9.0,
        "model": 1.0,
        "batch slope": 0.1,
        "model × batch slope": 0.05,
        "model × batch": 0.02,
        "accelerator": 0.1,
        "model × sheet slope": 0.01,
        "gang slope": 0.1,
        "link × near gang": 0.05,
        "accelerator × link × near gang": 0.05,
        "accelerator × link × gang": 0.05,
        "model × accelerator": 0.05,
        "accelerator × batch slope": 0.02,
        "model × accelerator × batch slope": 0.02,
        "model × link × near gang": 0.05,
        "model × link × near gang × batch": 0.02,
        "model × accelerator × link × near gang × batch": 0.03,
        "model × accelerator × link × gang × batch": 0.03,
    }
)
"""terms of the speed of a gang alone, by model, batch size, accelerator, gang and placement"""

PAIR_TERMS = _terms(
    {
        "": 1.0,
        "model": 0.1,
        "partner": 0.1,
        "model × batch": 0.1,
        "partner × partner batch": 0.1,
        "batch slope": 0.02,
        "partner batch slope": 0.02,
        "accelerator": 0.05,
        "model × accelerator": 0.05,
        "partner × accelerator": 0.05,
        "model × batch × accelerator": 0.05,
        "partner × partner batch × accelerator": 0.05,
        "model × partner": 0.05,
        "model × partner × batch × partner batch": 0.05,
        "model × partner × batch × partner batch × accelerator": 0.05,
    }
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
