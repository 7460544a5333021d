"""A first guess of the prices of a stage with many classes, from a sample of them.

The sample is solved by ``interior``, roughly; its answer to "how do prices and level respond to
more room?" then corrects both until the whole population, not only the sample, fits.
"""

import numpy as np

from fairlead.solve.arrays import BoolArray, FloatArray
from fairlead.solve.filling import Filling, fill_stage
from fairlead.solve.interior import Estimate, Sample, interior_prices
from fairlead.solve.pool import Decision, Pool, spread
from fairlead.solve.simplex import StageProgram
from fairlead.solve.table import ClassTable

_SAMPLE = 256
_TINY_SAMPLE = 32
_TOLERANCE = 0.1  # the response of a rough answer is smooth; a fine one's is that of few classes
_MOST_CORRECTIONS = 12
_NEARLY_FREE = 0.02


def estimate(pool: Pool) -> Decision:
    """Return what everyone decides at the stage's level and prices, guessed as well as may be."""
    chosen = spread(len(pool.size), _SAMPLE * max(1, len(pool.gain) // 3))
    part = pool.part(chosen)
    water = _capped_below(part)
    for _ in range(3):
        found = _from_sample(part, water)
        # Most of the correction is done on parts, where it costs little.
        for wanted in (len(pool.size) // 64, len(pool.size) // 8):
            if wanted >= 2 * _SAMPLE:
                found, _, _ = _correct(pool.part(spread(len(pool.size), wanted)), found)
        found, decision, imbalance = _correct(pool, found)
        if imbalance < 0.05:
            break
        water = _affordable(part, found.prices)
    return decision


def _capped_below(part: Pool) -> float:
    """Return 0 if the stage surely ends below all caps, otherwise a level not much above its end.

    Whoever has a lesser cap will be taken to stand there.
    """
    flat = np.ones(len(part.gain))
    least = float(part.cap.min())
    if part.cost(least, flat) > float(part.capacity.sum()):
        return 0.0
    few = part.part(spread(len(part.size), _TINY_SAMPLE))
    table = ClassTable.of(few.gain.T, few.size, few.capacity > 0)
    capacity = few.capacity
    while table.fits(table.best * few.count[:, None], capacity):
        capacity = 0.8 * capacity
    program = StageProgram(capacity)
    program.add(table.gain, table.size)
    none = np.zeros(len(few.size))
    state = Filling(program, table, few.count, capacity, none == 0, none)
    prices = fill_stage(state, table.fitting_cap(few.count, capacity))[0].prices
    return _affordable(part, prices)


def _affordable(part: Pool, prices: FloatArray) -> float:
    """Return about the greatest t that ``prices`` allow if everyone stands at min(t, cap)."""
    budget = float((prices * part.capacity).sum())
    low, high = 0.0, float(part.cap.max())
    if part.cost(high, prices) <= budget:
        return high
    for _ in range(12):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if part.cost(middle, prices) > budget else (middle, high)
    return high


def _from_sample(part: Pool, water: float) -> Estimate:
    rising = part.cap > water
    if not rising.any():
        rising = part.cap >= part.cap.max()
    total = float(part.count.sum())
    at_cap = np.bincount(part.gain[:, ~rising].argmax(axis=0), part.held[~rising], len(part.gain))
    room = np.maximum(part.capacity - at_cap, 0.02 * part.capacity) / total
    gain = np.ascontiguousarray(part.gain[:, rising])
    weight = part.count[rising] / total
    return interior_prices(Sample(gain, part.size[rising], weight, room), _TOLERANCE)


def _correct(pool: Pool, found: Estimate) -> tuple[Estimate, Decision, float]:
    """Return the estimate after quasi-Newton steps on everyone, and the imbalance left."""
    total, width = float(pool.count.sum()), len(pool.gain)
    matrix, t, prices = found.matrix.copy(), found.t, found.prices
    least = np.inf
    enough = 0.3 * float(pool.held.max() / pool.held.sum())
    step, before, stale = np.zeros(width + 1), np.zeros(width), 0
    for attempt in range(_MOST_CORRECTIONS):
        decision = pool.decide(t, prices)
        over = (pool.use(decision) - pool.capacity) / total
        worth = prices * pool.capacity / total
        imbalance = float((prices * np.abs(over)).sum() / worth.sum())
        if attempt:  # Broyden: the response must explain the last step
            miss = over - before - (matrix[:width] * step).sum(axis=1)
            matrix[:width] += miss[:, None] * step / (step * step).sum()
        stale = stale + 1 if imbalance > 0.5 * least else 0
        if imbalance < least:
            least, best = imbalance, (Estimate(t, prices, matrix.copy()), decision)
        if imbalance < enough or stale == 2:
            break
        # What stays far from full is free.
        idle = (worth < _NEARLY_FREE * worth.sum()) & (over * total < -0.02 * pool.capacity)
        step = _step(matrix, over, idle)
        scale = 0.3 * np.maximum(prices, 0.02 * prices.max())
        step[:width] = np.where(idle, -prices, np.clip(step[:width], -scale, scale))
        step[:width] = np.maximum(step[:width], -prices)
        step[width] = np.clip(step[width], -0.1 * t, 0.1 * t)
        t, prices, before = t + float(step[width]), prices + step[:width], over
    return *best, least


def _step(matrix: FloatArray, over: FloatArray, idle: BoolArray) -> FloatArray:
    rows = np.append(~idle, True)
    step = np.zeros(len(rows))
    step[rows] = np.linalg.solve(matrix[np.ix_(rows, rows)], np.append(-over[~idle], 0.0))
    return step
