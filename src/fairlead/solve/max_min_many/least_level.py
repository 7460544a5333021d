"""The plain max-min program: as high a least level as possible, and nothing beyond.

It is the first stage of the water-filling. Where a cap stops it rather than
the resources, any shares will do that bring everyone to the least cap, and prices of zero
prove that more is impossible; such shares are looked for by raising the prices of what is
wanted too much.
"""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.pricing import Decision, StageClasses
from fairlead.solve.max_min_many.stage import FlexibleClasses, solve_stage_many

_MAX_PASSES = 40
_FEW_CLASSES = 160


def least_level(classes: StageClasses) -> tuple[float, FloatArray, FloatArray]:
    """Return the greatest least level, prices that prove it, and classes × resources → share."""
    ceiling = float(classes.cap.min())
    decision = _fitting(classes, ceiling)
    width = len(classes.gain)
    if decision is not None:
        return ceiling, np.zeros(width), decision.shares(ceiling, classes.cap, width)
    if len(classes.size) <= _FEW_CLASSES:
        return _by_simplex(classes, ceiling)
    stage = solve_stage_many(classes, _tie_costs(classes), _no_flexible_classes(width))
    if stage is None:
        raise SolveError(
            "too many marginal classes", status="stalled", n_classes=len(classes.size)
        )
    return min(stage.t, ceiling), stage.prices, stage.share


def _fitting(classes: StageClasses, t: float) -> Decision | None:
    """Return ways to t for everyone that fit the capacity, if a few changes of price find any."""
    if t * float((classes.held / classes.cap).sum()) > float(classes.capacity.sum()):
        return None  # too little even if everyone ran where it gains most
    prices, haste = np.ones(len(classes.gain)), 0.75
    for _ in range(_MAX_PASSES):
        used = classes.use(t, prices)
        if (used <= classes.capacity).all():
            return classes.decide(t, prices)
        if (used * prices).sum() > (classes.capacity * prices).sum():
            return None  # even the cheapest ways cost more than all capacity is worth
        ratio = used / np.maximum(classes.capacity, 1e-300)
        prices = prices * np.clip(ratio, 0.5, 2.0) ** haste
        haste *= 0.93
    return None


def _by_simplex(classes: StageClasses, ceiling: float) -> tuple[float, FloatArray, FloatArray]:
    program = StageProgram(classes.capacity)
    program.add(classes.gain.T, classes.size)
    everyone = np.ones(len(classes.size), dtype=bool)
    vertex = program.maximise_level(classes.count, np.zeros(len(classes.size)), everyone, ceiling)
    if vertex is None:
        raise SolveError("nothing fits", status="infeasible", n_classes=len(classes.size))
    return vertex.t, vertex.prices, vertex.total / classes.count[:, None]


def _tie_costs(classes: StageClasses) -> FloatArray:
    """Return classes × resources → device time: no ties are broken where any optimum will do."""
    return np.repeat(classes.size[:, None], len(classes.gain), axis=1)


def _no_flexible_classes(width: int) -> FlexibleClasses:
    none, nothing = np.zeros(0), np.zeros((0, width))
    return FlexibleClasses(nothing, nothing, none, none, none, np.zeros(width))
