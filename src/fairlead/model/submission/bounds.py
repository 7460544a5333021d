"""Bounds of the numbers that users choose; solvers compute with every number within them."""

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


def clamped_weight(weight: float) -> float:
    """Return the weight that planners use: old event logs hold weights outside the bounds."""
    return min(max(weight, MIN_WEIGHT), MAX_WEIGHT)
