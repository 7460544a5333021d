"""The plain max-min program: as high a least level as possible, and nothing beyond.

It is the first stage of the water-filling. Where that is stopped by somebody's cap rather than
by the resources, any shares will do that bring everyone to the least cap, and prices of zero
prove that more is impossible; such shares are looked for by raising the prices of what is
wanted too much.
"""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.pricing import Decision, Pool
from fairlead.solve.max_min_many.stage import Held, solve_stage_many

_MOST_PASSES = 40
_FEW_CLASSES = 160


def least_level(pool: Pool) -> tuple[float, FloatArray, FloatArray]:
    """Return the greatest least level, prices that prove it, and classes × resources → share."""
    ceiling = float(pool.cap.min())
    decision = _fitting(pool, ceiling)
    width = len(pool.gain)
    if decision is not None:
        return ceiling, np.zeros(width), decision.shares(ceiling, pool.cap, width)
    if len(pool.size) <= _FEW_CLASSES:
        return _by_simplex(pool, ceiling)
    stage = solve_stage_many(pool, _tie_costs(pool), _no_flexible_classes(width))
    if stage is None:
        raise SolveError("too many marginal classes", status="stalled", n_classes=len(pool.size))
    return min(stage.t, ceiling), stage.prices, stage.share


def _fitting(pool: Pool, t: float) -> Decision | None:
    """Return ways to t for everyone that fit the capacity, if a few changes of price find any."""
    if t * float((pool.held / pool.cap).sum()) > float(pool.capacity.sum()):
        return None  # too little even if everyone ran where it gains most
    prices, haste = np.ones(len(pool.gain)), 0.75
    for _ in range(_MOST_PASSES):
        used = pool.use(t, prices)
        if (used <= pool.capacity).all():
            return pool.decide(t, prices)
        if (used * prices).sum() > (pool.capacity * prices).sum():
            return None  # even the cheapest ways cost more than all capacity is worth
        ratio = used / np.maximum(pool.capacity, 1e-300)
        prices = prices * np.clip(ratio, 0.5, 2.0) ** haste
        haste *= 0.93
    return None


def _by_simplex(pool: Pool, ceiling: float) -> tuple[float, FloatArray, FloatArray]:
    program = StageProgram(pool.capacity)
    program.add(pool.gain.T, pool.size)
    everyone = np.ones(len(pool.size), dtype=bool)
    vertex = program.maximise_level(pool.count, np.zeros(len(pool.size)), everyone, ceiling)
    if vertex is None:
        raise SolveError("nothing fits", status="infeasible", n_classes=len(pool.size))
    return vertex.t, vertex.prices, vertex.total / pool.count[:, None]


def _tie_costs(pool: Pool) -> FloatArray:
    """Return classes × resources → device time: no ties are broken where any optimum will do."""
    return np.repeat(pool.size[:, None], len(pool.gain), axis=1)


def _no_flexible_classes(width: int) -> Held:
    none, nothing = np.zeros(0), np.zeros((0, width))
    return Held(nothing, nothing, none, none, none, np.zeros(width))
