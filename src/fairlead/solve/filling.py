"""Water-filling by duals: lexicographic max-min levels in a few linear programs.

All classes rise together until some cannot. Those with a positive dual are bottlenecked
(strict complementarity) and are frozen; the rest rises on. A class also stops at its cap, its
greatest gain: the classes that stand at their caps when a stage ends are guessed from the last
answer and corrected, so that a stage takes one or two programs rather than one per class.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.errors import SolveError
from fairlead.solve.arrays import BoolArray, FloatArray
from fairlead.solve.simplex import StageProgram, Vertex
from fairlead.solve.table import ClassTable

_CAP_TOLERANCE = 1e-9  # relative: the water stands at a cap
_DUAL_TOLERANCE = 1e-7  # duals are near 1; HiGHS leaves noise up to 1e-10
_MOST_PROGRAMS = 200


@dataclass(frozen=True, slots=True)
class FilledStage:
    """Where one stage ended: the water's level, its prices and the classes it froze."""

    t: float
    prices: FloatArray
    frozen: BoolArray


def fill(
    program: StageProgram, table: ClassTable, count: FloatArray, guess: tuple[float, ...]
) -> tuple[FloatArray, list[FilledStage]]:
    """Return classes × resources → share of a member, and the stages that led there.

    ``guess`` holds levels of the stages; it decides only how many programs are solved.
    """
    free = count > 0
    held = np.zeros(len(count))
    loose = program.loose(~free, table.gain <= 0)
    stages: list[FilledStage] = []
    while free.any():
        near = guess[len(stages)] if len(stages) < len(guess) else stages[-1].t
        stage, vertex = _fill_stage(program, table, count, held, free, near)
        stages.append(stage)
        held = np.where(stage.frozen, np.minimum(stage.t, table.cap), held)
        free &= ~stage.frozen
        # A dual says that all choices of shares with these levels leave its share or slack at 0.
        loose &= np.abs(vertex.dual) <= _DUAL_TOLERANCE
    total = vertex.total
    if _undetermined(program, table, loose, held):
        total = program.least_cost(count, held, table.cost).total
    return total / np.maximum(count, 1e-300)[:, None], stages


def _undetermined(
    program: StageProgram, table: ClassTable, loose: BoolArray, level: FloatArray
) -> bool:
    """Return whether other shares may reach these levels: something loose is nonbasic."""
    loose[program.basic()] = False
    if not loose.any():
        return False
    # A class at its cap spends all its time on its best resource, if it has only one.
    settled = table.alone & (level >= table.cap)
    return bool((loose & program.loose(settled, table.gain <= 0)).any())


def _fill_stage(
    program: StageProgram,
    table: ClassTable,
    count: FloatArray,
    held: FloatArray,
    free: BoolArray,
    guess: float,
) -> tuple[FilledStage, Vertex]:
    """Return the stage at whose end every free class stands at min(t, cap), t greatest."""
    cap = table.cap
    low, high = 0.0, np.inf  # t lies between
    theta, halve = guess, False
    for _ in range(_MOST_PROGRAMS):
        capped = free & (cap <= theta)
        follows = free & ~capped
        top = float((cap * capped).max())
        vertex = program.raise_water(count, np.where(capped, cap, held), follows, table.ceiling)
        if vertex is None or vertex.t < top * (1 - _CAP_TOLERANCE):
            # Holding the greatest of these caps is too much, so the water stays below it.
            high = min(high, top)
            low = max(low, vertex.t) if vertex is not None else low
            theta = _middle(cap[free], low, high) if halve or vertex is None else low
            halve = True
            continue
        at_cap = follows & (cap <= vertex.t * (1 + _CAP_TOLERANCE))
        if at_cap.any() and not (vertex.prices > _DUAL_TOLERANCE).any():
            # Only caps stop the water: it can stand higher with these held at theirs.
            low = vertex.t * (1 + _CAP_TOLERANCE)
            theta = _middle(cap[free], low, high)
            halve = True
            continue
        frozen = capped | at_cap | (follows & (vertex.pull > _DUAL_TOLERANCE))
        if not frozen.any():
            frozen = follows & (vertex.pull >= vertex.pull[follows].max())
        return FilledStage(min(vertex.t, float(cap[frozen].max())), vertex.prices, frozen), vertex
    raise SolveError("caps did not settle", status="cycling", n_classes=int(free.sum()))


def _middle(caps: FloatArray, low: float, high: float) -> float:
    """Return the median cap strictly between, or ``low`` when there is none."""
    between = np.sort(caps[(caps > low) & (caps < high)])
    return float(between[len(between) // 2]) if len(between) else low

