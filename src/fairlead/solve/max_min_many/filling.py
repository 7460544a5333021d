"""The whole water-filling for many distinct classes, stage by stage.

A stage's frozen classes need all of what has a price, and have no other way to their levels; so
what remains is a problem of the same kind with fewer classes, the unpriced resources, and what
the frozen classes leave of these.
"""

from contextlib import suppress

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import (
    DUAL_TOLERANCE,
    Filling,
    FillingStage,
    fill,
)
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.filling_state import FillingProgress
from fairlead.solve.max_min_many.pricing import StageClasses
from fairlead.solve.max_min_many.stage import solve_stage_many

# Simplex alone takes minutes beyond.
_MAX_SIMPLEX_CLASSES = 5000


def fill_many_classes(
    table: ClassTable, count: FloatArray, capacity: FloatArray, few: int
) -> tuple[FloatArray, list[FillingStage]]:
    """Return classes × resources → share of a member, and the stages that led there.

    Once at most ``few`` classes are left, or if too many are marginal, simplex takes over.
    """
    now = FillingProgress(table, count, capacity)
    while now.free.any():
        index = np.flatnonzero(now.free)
        rest = table if now.free.all() else table.rows(index, now.usable)
        room = now.room()
        if rest.fits(rest.best * count[index, None], room):
            now.share[index] = rest.best
            now.flexible = np.concatenate([now.flexible, index[~rest.alone]])
            end = FillingStage(float(rest.cap.max()), np.zeros(len(room)), now.free[index])
            now.freeze_stage(end, index, rest.cap)
            break
        stage = None
        if len(index) > few:
            classes = StageClasses(
                np.ascontiguousarray(rest.gain.T), rest.size, count[index], room
            )
            with suppress(SolveError, np.linalg.LinAlgError):
                stage = solve_stage_many(classes, rest.cost, now.held())
        if stage is None:
            if len(index) > _MAX_SIMPLEX_CLASSES:
                why = "too many marginal classes"
                raise SolveError(why, status="stalled", n_classes=len(index))
            _fill_by_simplex(now, index)
            return now.share, now.stages
        now.share[now.flexible] = stage.held_share
        now.share[index[stage.frozen]] = stage.share[stage.frozen]
        now.freeze_stage(FillingStage(stage.t, stage.prices, stage.frozen), index, rest.cap)
        tied = index[stage.marginal]
        now.flexible = np.concatenate([now.flexible, tied[~now.free[tied]]])
        now.usable = now.usable & (stage.prices <= DUAL_TOLERANCE)
    if len(now.stages) > 1:
        now.settle()
    return now.share, now.stages


def _fill_by_simplex(now: FillingProgress, index: IntArray) -> None:
    """Fill the classes ``index`` by simplex, the flexible ones keeping their levels."""
    held, table = now.held(), now.table
    members = np.concatenate([now.flexible, index])
    rows = table.rows(members, now.capacity > 0)
    first = len(now.flexible)
    free = np.arange(len(members)) >= first
    rows = rows.without(~now.usable, free)
    room = now.room() + held.used
    program = StageProgram(room)
    program.add(rows.gain, rows.size)
    count = now.count[members]
    state = Filling(program, rows, count, room, free, now.level[members])
    loose = program.loose(count <= 0, rows.gain <= 0)
    guess = (rows.first_guess(count * free, now.room()),) if not now.stages else ()
    total, stages = fill(state, loose, guess or (now.stages[-1].t,))
    now.share[members] = total / count[:, None]
    for stage in stages:
        free_part = FillingStage(stage.t, stage.prices, stage.frozen[first:])
        now.freeze_stage(free_part, index, rows.cap[first:])
