"""The whole water-filling of a moderate number of classes from guessed prices: no program.

A rough interior point estimates a stage's prices; from there ``WarmStage`` finds the stage
exactly in a few steps. Its frozen classes are final, so the rest is a problem of the same form
with fewer classes and the resources without a price.
"""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import DUAL_TOLERANCE, FillingStage
from fairlead.solve.max_min.warm_start import WarmStage
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.max_min_many.price_estimate import rough_prices
from fairlead.solve.max_min_many.pricing import StageClasses


def fill_from_guessed_prices(
    table: ClassTable, count: FloatArray, capacity: FloatArray
) -> tuple[FloatArray, list[FillingStage]] | None:
    """Return classes × resources → share of a member, and the stages that led there.

    None if prices do not lead to an answer that is the only one.
    """
    now = FillingProgress(table, count, capacity)
    while now.free.any():
        index = np.flatnonzero(now.free)
        rest, room = table.rows(index, now.usable), now.room()
        if rest.fits(rest.best * count[index, None], room):
            if not rest.alone.all():
                return None
            now.share[index] = rest.best
            end = FillingStage(float(rest.cap.max()), np.zeros(len(room)), now.free[index])
            now.freeze_stage(end, index, rest.cap)
            break
        outcome = _stage(rest, count[index], room)
        if outcome is None:
            return None
        stage, share = outcome
        now.share[index[stage.frozen]] = share[stage.frozen]
        now.freeze_stage(stage, index, rest.cap)
        now.usable = now.usable & (stage.prices <= DUAL_TOLERANCE)
    return now.share, now.stages


def _stage(
    table: ClassTable, count: FloatArray, room: FloatArray
) -> tuple[FillingStage, FloatArray] | None:
    open_ = table.is_open
    classes = StageClasses(
        np.ascontiguousarray(table.gain.T[open_]), table.size, count, room[open_]
    )
    prices = np.zeros(len(room))
    try:
        t, prices[open_] = rough_prices(classes)
    except np.linalg.LinAlgError:
        return None
    warm = WarmStage(table, room)
    if not warm.guess(t, prices, count > 0):
        return None
    return warm.stage(count)
