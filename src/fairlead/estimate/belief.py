"""Beliefs about speeds that every measurement improves.

The cells of a table have one joint normal distribution in log space, so a measurement of one
cell moves those that resemble it. A declared speed is a weak measurement: the first real one
overrules it. One surprising measurement is set aside; a second one that agrees with it means
that the speed has changed.
"""

import math
from typing import Literal

import numpy as np

from fairlead.estimate.gaussian_process import Estimate
from fairlead.model.arrays import FloatArray

MEASURED_SD = 0.03
"""standard deviation of the logarithm of a speed measured over one round"""
DECLARED_SD = 0.7
"""standard deviation of the logarithm of a declared speed: a factor of two is nothing unusual"""
DRIFT_SD = 0.01
"""standard deviation of the change of a speed between two measurements"""
SURPRISE = 3.5
"""standard deviations from the belief beyond which a measurement is surprising"""

Verdict = Literal["taken", "set aside", "changed"]
"""effect of a measurement: it counts, it was an outlier so far, or the speed has changed"""


class Belief:
    """Mean and covariance of the log speeds of some cells."""

    def __init__(self, mean: FloatArray, covariance: FloatArray) -> None:
        self._mean = mean.copy()
        self._covariance = covariance.copy()
        self._set_aside: dict[int, float] = {}
        """cell → logarithm of the last measurement, if that was surprising"""

    def estimate(self) -> Estimate:
        """Return the believed log speeds with their doubt."""
        variance = np.maximum(np.diagonal(self._covariance), 0.0)
        return Estimate(self._mean.copy(), np.sqrt(variance))

    def declare(self, cell: int, steps_per_s: float) -> None:
        """Take the word of a tenant for the speed of a cell."""
        self._condition(cell, math.log(steps_per_s), DECLARED_SD**2)

    def measure(self, cell: int, steps_per_s: float, *, sd: float = MEASURED_SD) -> Verdict:
        """Take a measured speed; ``sd`` is the standard deviation of its logarithm."""
        measured = math.log(steps_per_s)
        self._covariance[cell, cell] += DRIFT_SD**2
        doubt = math.sqrt(max(float(self._covariance[cell, cell]), 0.0) + sd**2)
        surprise = measured - float(self._mean[cell])
        if abs(surprise) <= SURPRISE * doubt:
            self._set_aside.pop(cell, None)
            self._condition(cell, measured, sd**2)
            return "taken"
        earlier = self._set_aside.get(cell)
        if earlier is None or abs(measured - earlier) > SURPRISE * sd * math.sqrt(2.0):
            self._set_aside[cell] = measured
            return "set aside"
        # Only this cell has changed: its neighbours keep their beliefs.
        del self._set_aside[cell]
        self._forget(cell, surprise**2)
        self._condition(cell, measured, sd**2)
        return "changed"

    def _condition(self, cell: int, measured: float, noise: float) -> None:
        """Condition the distribution on one measurement."""
        column = self._covariance[:, cell].copy()
        gain = column / (column[cell] + noise)
        self._mean += gain * (measured - self._mean[cell])
        self._covariance -= np.outer(gain, column)

    def _forget(self, cell: int, variance: float) -> None:
        """Make a cell independent of the others, with this variance."""
        self._covariance[cell, :] = 0.0
        self._covariance[:, cell] = 0.0
        self._covariance[cell, cell] = variance
