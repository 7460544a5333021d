"""Gaussian process over the cells of a speed table, in log space.

The covariance is a sum of terms (``kernels``). Their variances are those that make the known
speeds most probable, under a wide prior around the terms' own variances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.estimate.cells import Cells
from fairlead.estimate.kernels import Term, covariance, diagonal, matrices
from fairlead.model.arrays import FloatArray
from fairlead.model.speeds.interval import Z_80

NOISE = 1e-3
"""variance of the logarithm of a measured speed: about 3 %"""
PRIOR_SD = 1.0
"""standard deviation of the logarithm of a variance around the term's own"""
MAX_STEPS = 25
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated natural logarithms and their standard deviations, one entry a cell."""

    mean: FloatArray
    sd: FloatArray

    @property
    def median(self) -> FloatArray:
        """The estimates themselves, whose logarithms are ``mean``."""
        return np.exp(self.mean)

    def interval(self, z: float = Z_80) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of the estimates; 80 % of the truth should lie between them."""
        return np.exp(self.mean - z * self.sd), np.exp(self.mean + z * self.sd)


@dataclass(frozen=True, slots=True)
class Variances:
    """Fitted variances of the terms and of the noise."""

    terms: FloatArray
    noise: float

    @classmethod
    def default(cls, terms: Sequence[Term]) -> "Variances":
        """Return the variances before any table was seen."""
        return cls(np.array([term.variance for term in terms]), NOISE)


def fit_variances(terms: Sequence[Term], cells: Cells, log_speed: FloatArray) -> Variances:
    """Return the variances that make the logarithms most probable.

    Newton's method on logarithms of variances with the average information of Gilmour, Thompson
    and Cullis (1995) as the curvature, which needs no product of two matrices.
    """
    kernels = [*matrices(terms, cells, cells), np.eye(len(cells))]
    prior = np.log([*(term.variance for term in terms), NOISE])
    log_variance = prior.copy()
    for _ in range(MAX_STEPS):
        variance = np.exp(log_variance)
        total = sum(v * kernel for v, kernel in zip(variance, kernels, strict=True))
        inverse = np.linalg.inv(total)
        alpha = inverse @ log_speed
        pulled = np.column_stack(
            [v * (kernel @ alpha) for v, kernel in zip(variance, kernels, strict=True)]
        )
        traces = np.array(
            [
                v * float(np.vdot(inverse, kernel))
                for v, kernel in zip(variance, kernels, strict=True)
            ]
        )
        slope = 0.5 * (alpha @ pulled - traces) - (log_variance - prior) / PRIOR_SD**2
        curvature = 0.5 * pulled.T @ inverse @ pulled + np.eye(len(prior)) / PRIOR_SD**2
        step = np.clip(np.linalg.solve(curvature, slope), -1.0, 1.0)
        log_variance += step
        if float(np.abs(step).max()) < _TOLERANCE:
            break
    variance = np.exp(log_variance)
    return Variances(variance[:-1], float(variance[-1]))


class GaussianProcess:
    """Estimates of unknown cells from known ones."""

    def __init__(
        self,
        terms: Sequence[Term],
        cells: Cells,
        log_speed: FloatArray,
        variances: Variances | None = None,
        noise: FloatArray | None = None,
    ) -> None:
        """Condition on known cells.

        Without ``variances`` these are fitted. ``noise`` adds a variance to each measurement,
        such as that of a speed that was declared and not measured.
        """
        self.terms = terms
        self.cells = cells
        centred = log_speed - cells.guess
        self.variances = variances or fit_variances(terms, cells, centred)
        total = covariance(terms, self.variances.terms, cells, cells)
        own = np.full(len(cells), self.variances.noise)
        self._inverse = np.linalg.inv(total + np.diag(own if noise is None else own + noise))
        self._alpha = self._inverse @ centred
        self.sd_scale = self._calibration()

    def _calibration(self) -> float:
        """Return the factor by which stated deviations were too small on the known cells.

        Each known cell is estimated from all others: its error is alpha over the diagonal of the
        inverse. 80 % of the errors should be within 1.28 standard deviations.
        """
        if len(self.cells) < 20:
            return 1.0
        errors = np.abs(self._alpha / np.sqrt(np.diagonal(self._inverse)))
        return float(np.clip(np.quantile(errors, 0.8) / Z_80, 0.5, 2.0))

    def predict(self, cells: Cells) -> Estimate:
        """Return the estimates of these cells, as a further measurement would find them."""
        across = covariance(self.terms, self.variances.terms, cells, self.cells)
        mean = cells.guess + across @ self._alpha
        explained = np.einsum("ij,ij->i", across @ self._inverse, across)
        prior = diagonal(self.terms, self.variances.terms, cells)
        variance = np.maximum(prior - explained, 0.0) + self.variances.noise
        return Estimate(mean, self.sd_scale * np.sqrt(variance))

    def joint(self, cells: Cells) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance of these cells, for ``Belief``."""
        across = covariance(self.terms, self.variances.terms, cells, self.cells)
        mean = cells.guess + across @ self._alpha
        spread = covariance(self.terms, self.variances.terms, cells, cells)
        return mean, self.sd_scale**2 * (spread - across @ self._inverse @ across.T)


def prior(terms: Sequence[Term], cells: Cells) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of cells of which nothing is known but the data sheets."""
    variances = Variances.default(terms)
    return cells.guess, covariance(terms, variances.terms, cells, cells)


def relative_error(estimated: FloatArray, true: FloatArray) -> FloatArray:
    """Return |estimated − true| / true of each cell."""
    error: FloatArray = np.abs(estimated - true) / true
    return error


def coverage(estimate: Estimate, log_speed: FloatArray) -> float:
    """Return the part of the true logarithms within the stated 80 % intervals."""
    if not len(log_speed):
        return math.nan
    return float(np.mean(np.abs(log_speed - estimate.mean) <= Z_80 * estimate.sd))
