"""Completion of large tables: log speeds as a few factors of each workload.

A row is the mean of the columns plus its factors times the columns' loadings plus noise. The
time grows with the number of entries, so thousands of workloads take milliseconds; the
Gaussian process, which knows more of how cells resemble each other, takes the cube of the
known entries.
"""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.estimate.gaussian_process import Estimate
from fairlead.model.arrays import BoolArray, FloatArray

RANK = 5
SWEEPS = 6
LEVEL_VARIANCE = 9.0
"""prior variance of the level of a row: workloads differ by orders of magnitude"""
LOADING_VARIANCE = 0.25
NOISE_FLOOR = 1e-4


@dataclass(frozen=True, slots=True)
class FactorModel:
    """Column means, loadings and noise of a table's log speeds."""

    mean: FloatArray
    """columns → mean over rows"""
    loadings: FloatArray
    """columns × factors; the first factor is the level of a row, with loading 1"""
    factor_variance: FloatArray
    """factors → prior variance"""
    noise: float

    @classmethod
    def fit(cls, log_speed: FloatArray, known: BoolArray, rank: int = RANK) -> "FactorModel":
        """Return the model that fits the known entries, by expectation and maximisation."""
        model = _start(log_speed, known, min(rank, log_speed.shape[1]))
        for _ in range(SWEEPS):
            model = model._refined(log_speed, known)
        return model

    def row_factors(
        self, log_speed: FloatArray, known: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return rows × factors and their covariance, rows × factors × factors."""
        outer = self.loadings[:, :, None] * self.loadings[:, None, :]
        rank = self.loadings.shape[1]
        weight = known.astype(float) / self.noise
        precision = (weight @ outer.reshape(len(self.mean), -1)).reshape(-1, rank, rank)
        precision += np.diag(1.0 / self.factor_variance)
        spread = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        centred = np.where(known, log_speed - self.mean, 0.0)
        factors = np.einsum("ikl,il->ik", spread, (weight * centred) @ self.loadings)
        return factors, spread

    def complete(self, log_speed: FloatArray, known: BoolArray) -> Estimate:
        """Return the estimates of all entries of these rows."""
        factors, spread = self.row_factors(log_speed, known)
        rank = self.loadings.shape[1]
        outer = (self.loadings[:, :, None] * self.loadings[:, None, :]).reshape(-1, rank * rank)
        variance = spread.reshape(-1, rank * rank) @ outer.T + self.noise
        return Estimate(self.mean + factors @ self.loadings.T, np.sqrt(np.maximum(variance, 0.0)))

    def _refined(self, log_speed: FloatArray, known: BoolArray) -> "FactorModel":
        """Return the model after one sweep over all entries."""
        factors, spread = self.row_factors(log_speed, known)
        rank, weight = factors.shape[1], known.astype(float)
        second = factors[:, :, None] * factors[:, None, :] + spread
        count = np.maximum(weight.sum(axis=0), 1e-9)
        rest = np.where(known, log_speed - factors @ self.loadings.T, 0.0)
        mean = rest.sum(axis=0) / (count + self.noise)
        squares = (weight.T @ second.reshape(len(factors), -1)).reshape(-1, rank, rank)
        centred = np.where(known, log_speed - mean, 0.0)
        right = centred.T @ factors[:, 1:] - squares[:, 0, 1:]
        ridge = self.noise / LOADING_VARIANCE * np.eye(rank - 1)
        loadings = self.loadings.copy()
        loadings[:, 1:] = np.linalg.solve(squares[:, 1:, 1:] + ridge, right[:, :, None])[:, :, 0]
        error = np.where(known, centred - factors @ loadings.T, 0.0)
        outer = (loadings[:, :, None] * loadings[:, None, :]).reshape(-1, rank * rank)
        doubt = float(np.vdot(weight, spread.reshape(-1, rank * rank) @ outer.T))
        noise = (float(np.vdot(error, error)) + doubt) / max(float(weight.sum()), 1.0)
        return replace(self, mean=mean, loadings=loadings, noise=max(noise, NOISE_FLOOR))


def _start(log_speed: FloatArray, known: BoolArray, rank: int) -> FactorModel:
    """Return the additive fit, with the main directions of its errors as loadings."""
    weight = known.astype(float)
    level = np.zeros(len(log_speed))
    mean = np.zeros(log_speed.shape[1])
    for _ in range(5):
        mean = _average(log_speed - level[:, None], weight, axis=0)
        level = _average(log_speed - mean, weight, axis=1)
    error = np.where(known, log_speed - level[:, None] - mean, 0.0)
    both = np.maximum(weight.T @ weight, 1.0)
    shared = (error.T @ error) / both * (both / (both + 2.0))
    value, direction = np.linalg.eigh(shared)
    top = np.argsort(value)[::-1][: rank - 1]
    loadings = np.ones((len(mean), rank))
    loadings[:, 1:] = direction[:, top] * np.sqrt(np.maximum(value[top], NOISE_FLOOR))
    variance = np.ones(rank)
    variance[0] = LEVEL_VARIANCE
    noise = max(float(np.vdot(error, error)) / max(float(weight.sum()), 1.0) / 4, NOISE_FLOOR)
    return FactorModel(mean, loadings, variance, noise)


def _average(values: FloatArray, weight: FloatArray, axis: int) -> FloatArray:
    """Return the mean of known values, 0 where there is none."""
    total = np.where(weight > 0, values, 0.0).sum(axis=axis)
    average: FloatArray = total / np.maximum(weight.sum(axis=axis), 1.0)
    return average
