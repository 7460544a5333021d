"""Bounds of the numbers that users choose; solvers compute with every number within them."""

from dataclasses import dataclass
from numbers import Real

from fairlead.model.errors import UsageError

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
MIN_SECONDS, MAX_SECONDS = 1e-3, 1e10
MAX_GRACE_S = 3600.0
MIN_GIB, MAX_GIB = 1e-3, 1e6
MAX_STEPS = 10**12
MIN_STEPS_LEFT, MAX_STEPS_LEFT = 1e-6, 1e15
"""bounds of steps in traces and instances, where they may be fractions"""
MIN_SPEED, MAX_SPEED = 1e-9, 1e12
"""bounds of speeds other than 0, in steps per second"""
MIN_QUOTA, MAX_QUOTA = 1e-6, 1e6
"""bounds of quotas other than 0, in devices"""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers that an option of a command and the same parameter in Python allow."""

    least: float
    most: float

    def check(self, field: str, value: float) -> None:
        """Raise UsageError that names the field unless the value is in the range."""
        if not isinstance(value, Real):
            raise UsageError(f"{field}: not a number: {value!r}: expected one such as 2.5")
        if not self.least <= value <= self.most:  # as for NaN
            expected = f"{self.least:g} to {self.most:g}"
            raise UsageError(f"{field}: out of range: expected {expected}")


ROUND_RANGE = Range(MIN_SECONDS, MAX_SECONDS)
RESTORE_COST_RANGE = Range(0, 1e9)
NOISE_RANGE = Range(0, 1)
PLAN_ON_RANGE = Range(0.01, 0.99)


def clamped_weight(weight: float) -> float:
    """Return the weight that planners use: old event logs hold weights outside the bounds."""
    return min(max(weight, MIN_WEIGHT), MAX_WEIGHT)
