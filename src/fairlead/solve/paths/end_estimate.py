"""A first guess of the end of a climb's stage: its prices, and the theta that they allow.

Any prices bound theta. Those of a sample bring it near the end in a few steps; there the prices
are estimated for all classes.
"""

from collections.abc import Callable

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.solve.max_min_many.price_estimate import estimate, sample_prices
from fairlead.solve.max_min_many.pricing import StageClasses
from fairlead.solve.paths.bound import ClimbingClasses

_MAX_ROUGH_STEPS = 4
_ROUGH_EXCESS = 0.01  # relative to the budget
_NEAR_END = 0.8  # a step that leaves this part of theta is the last rough one
_MARGIN = 1.05  # over theta, to keep the water clear of the caps
_RISEN = 1e-9  # relative to the cap


def estimate_end(
    climbing: ClimbingClasses,
    usable: BoolArray,
    room: FloatArray,
    budget: Callable[[FloatArray], float],
    low: float,
) -> tuple[float, FloatArray]:
    """Return the greatest theta from ``low`` on that the estimated prices allow, and these.

    ``budget`` is the worth of what the climbing classes may use at given prices.
    """
    top, prices = climbing.path.top, usable.astype(np.float64)
    theta = climbing.greatest(prices, budget(prices), low, top, _ROUGH_EXCESS)
    # In units of the levels at theta, the water stands below 1, and so below all caps.
    for _ in range(_MAX_ROUGH_STEPS):
        classes = _scaled_classes(climbing, room, theta)
        if classes is None:
            return theta, prices
        last, prices = theta, sample_prices(classes, 0.0)
        theta = climbing.greatest(prices, budget(prices), low, theta, _ROUGH_EXCESS)
        if theta > _NEAR_END * last:
            break
    classes = _scaled_classes(climbing, room, min(theta * _MARGIN, top))
    if classes is not None:
        prices = estimate(classes, 0.0)[1]
    return climbing.greatest(prices, budget(prices), low, theta), prices


def _scaled_classes(
    climbing: ClimbingClasses, room: FloatArray, theta: float
) -> StageClasses | None:
    """Return the classes that have risen, in units of their levels at ``theta``."""
    level = climbing.level(theta)
    up = np.flatnonzero(level > _RISEN * climbing.cap)
    if not len(up):
        return None
    scaled = np.ascontiguousarray(climbing.gain[:, up] / level[up])
    return StageClasses(scaled, climbing.size[up], climbing.count[up], room)
