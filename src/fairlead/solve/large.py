"""The whole water-filling for many distinct classes: ``sifting`` stage by stage.

A stage's frozen classes need all of what has a price, and have no other way to their levels; so
what remains is a problem of the same kind with fewer classes, the unpriced resources, and what
the frozen classes leave of these.
"""

import numpy as np

from fairlead.model.errors import SolveError
from fairlead.solve.arrays import FloatArray, IntArray
from fairlead.solve.filling import DUAL_TOLERANCE, FilledStage, Filling, fill
from fairlead.solve.pool import Pool
from fairlead.solve.sifting import sift
from fairlead.solve.simplex import StageProgram
from fairlead.solve.table import ClassTable

# Prices of earlier stages must outweigh a later stage's, to keep its frozen classes in place.
_PRECEDENCE = 1e3
# Simplex alone takes minutes beyond.
_MOST_BY_SIMPLEX = 5000


def fill_many(
    table: ClassTable, count: FloatArray, capacity: FloatArray, few: int
) -> tuple[FloatArray, list[FilledStage]]:
    """Return classes × resources → share of a member, and the stages that led there.

    Once at most ``few`` classes are left, or if too many are marginal, simplex takes over.
    """
    share = np.zeros_like(table.gain)
    stages: list[FilledStage] = []
    free, room = count > 0, capacity.copy()
    usable = capacity > 0
    prices = np.zeros(len(capacity))
    while free.any():
        index = np.flatnonzero(free)
        rest = table if free.all() else table.rows(index, usable)
        if rest.fits(rest.best * count[index, None], room):
            share[index] = rest.best
            stages.append(FilledStage(float(rest.cap.max()), prices, free))
            break
        pool = Pool(np.ascontiguousarray(rest.gain.T), rest.size, count[index], room)
        stage = sift(pool) if len(index) > few else None
        if stage is None and len(index) > _MOST_BY_SIMPLEX:
            raise SolveError("too many marginal classes", status="stalled", n_classes=len(index))
        if stage is None:
            share[index], later = _fill_few(rest, count[index], room)
            stages += [_widen(each, index, len(count), prices) for each in later]
            break
        frozen = index[stage.frozen]
        share[frozen] = stage.share[stage.frozen]
        found = FilledStage(stage.t, stage.prices, stage.frozen)
        stages.append(_widen(found, index, len(count), prices))
        prices = stages[-1].prices
        used = (count[frozen] * table.size[frozen])[:, None] * share[frozen]
        room = np.maximum(room - used.sum(axis=0), 0.0)
        usable = usable & (stage.prices <= DUAL_TOLERANCE)
        free = free.copy()
        free[frozen] = False
    return share, stages


def _fill_few(
    table: ClassTable, count: FloatArray, capacity: FloatArray
) -> tuple[FloatArray, list[FilledStage]]:
    program = StageProgram(capacity)
    program.add(table.gain, table.size)
    none = np.zeros(len(count))
    state = Filling(program, table, count, capacity, none == 0, none)
    loose = program.loose(none != 0, table.gain <= 0)
    guess = (table.fitting_cap(count, capacity),)
    total, stages = fill(state, loose, guess)
    return total / count[:, None], stages


def _widen(stage: FilledStage, index: IntArray, classes: int, earlier: FloatArray) -> FilledStage:
    """Return a stage of the remaining classes as one of all, its prices after the earlier ones."""
    frozen = np.zeros(classes, bool)
    frozen[index[stage.frozen]] = True
    prices = stage.prices
    if earlier.any():
        weight = _PRECEDENCE * max(float(prices.max()), 1e-300) / float(earlier.max())
        prices = prices + weight * earlier if prices.any() else earlier
    return FilledStage(stage.t, prices, frozen)
