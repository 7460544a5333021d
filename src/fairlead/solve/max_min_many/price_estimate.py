"""A first guess of the prices of a stage with many classes, from a sample of them.

The sample is solved by ``interior``, roughly; its answer to "how do prices and level respond to
more room?" then corrects both until the whole population, not only the sample, fits.
"""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.filling import Filling, fill_stage
from fairlead.solve.max_min.program import StageProgram
from fairlead.solve.max_min_many.interior_point import Estimate, InteriorProblem, interior_prices
from fairlead.solve.max_min_many.price_newton import imbalance, refine_prices
from fairlead.solve.max_min_many.pricing import StageClasses, spread_indices

# Sample size and tolerance of the interior point; the next row where the last did not suffice.
# A rough answer comes first: its response is smooth, a fine one's is that of marginal classes.
_ATTEMPTS = ((256, 0.1), (1024, 0.03), (4096, 0.01))
_ATTEMPTS_FROM_LEVEL = ((256, 0.05), *_ATTEMPTS[1:])
_ROUGH_TOLERANCE = 0.03
_AFFORDABLE_TOLERANCE = 2e-3
_TINY_SAMPLE = 32
_GOOD = 2e-3  # relative imbalance
_FINE = 1e-4
_MAX_IMBALANCE = 50  # classes in the wrong place that the exact program soon corrects
_MAX_CORRECTIONS = 12
_SMOOTH = 20_000  # so many classes respond smoothly enough for Newton's method


def estimate(classes: StageClasses, water: float | None = None) -> tuple[float, FloatArray]:
    """Return an estimate of the stage's level and prices.

    ``water`` says from which level on classes surely rise, where the caller knows it.
    """
    population, width = len(classes.size), len(classes.gain)
    t, prices, least = 0.0, np.zeros(0), np.inf
    for wanted, tolerance in _ATTEMPTS if water is None else _ATTEMPTS_FROM_LEVEL:
        part = classes.sample(spread_indices(population, wanted * max(1, width // 3)))
        if least < np.inf:
            water = _affordable_level(part, prices)
        elif water is None:
            water = _level_upper_bound(part)
        guess = _from_sample(part, water, tolerance)
        # Most of the correction is done on parts, where it costs little.
        for part_size in (population // 64, population // 8):
            if part_size >= 2 * wanted:
                guess, _ = _correct(classes.sample(spread_indices(population, part_size)), guess)
        guess, left = _correct(classes, guess)
        if left < least:
            t, prices, least = guess.t, guess.prices, left
        if least < max(_GOOD, _MAX_IMBALANCE / population):
            break
    return refine_prices(classes, t, prices) if population > _SMOOTH else (t, prices)


def sample_prices(classes: StageClasses, water: float) -> FloatArray:
    """Return rough prices from a sample alone; classes with a cap above ``water`` rise."""
    wanted, tolerance = _ATTEMPTS[0]
    chosen = spread_indices(len(classes.size), wanted * max(1, len(classes.gain) // 3))
    return np.maximum(_from_sample(classes.sample(chosen), water, tolerance).prices, 0.0)


def rough_prices(classes: StageClasses) -> tuple[float, FloatArray]:
    """Return the stage's level and prices to about a hundredth, for a moderate number of classes.

    Classes that cannot exceed the level of equal prices are taken to stand at their caps.
    """
    water = _affordable_level(classes, np.ones(len(classes.gain)))
    prices = np.maximum(_from_sample(classes, water, _ROUGH_TOLERANCE).prices, 0.0)
    # Some class still rises, or there would be no prices.
    return min(
        _affordable_level(classes, prices), (1 - _AFFORDABLE_TOLERANCE) * float(classes.cap.max())
    ), prices


def _level_upper_bound(part: StageClasses) -> float:
    """Return 0 if the stage surely ends below all caps, otherwise a level not much above its end.

    Classes with a lower cap will be taken to stand there.
    """
    flat = np.ones(len(part.gain))
    least = float(part.cap.min())
    if part.cost(least, flat) > float(part.capacity.sum()):
        return 0.0
    few = part.sample(spread_indices(len(part.size), _TINY_SAMPLE))
    table = ClassTable.of(few.gain.T, few.size, few.capacity > 0)
    capacity = few.capacity
    while table.fits(table.best * few.count[:, None], capacity):
        capacity = 0.8 * capacity
    program = StageProgram(capacity)
    program.add(table.gain, table.size)
    none = np.zeros(len(few.size))
    state = Filling(program, table, few.count, capacity, none == 0, none)
    prices = fill_stage(state, table.first_guess(few.count, capacity))[0].prices
    return _affordable_level(part, prices)


def _affordable_level(part: StageClasses, prices: FloatArray) -> float:
    """Return about the greatest t that ``prices`` allow if everyone stands at min(t, cap)."""
    budget = float((prices * part.capacity).sum())
    low, high = 0.0, float(part.cap.max())
    under, over = -budget, part.cost(high, prices) - budget
    if over <= 0:
        return high
    for _ in range(12):
        # Between a secant and halves: caps make the cost bend either way.
        t = 0.5 * (0.5 * (low + high) + low - under * (high - low) / (over - under))
        excess = part.cost(t, prices) - budget
        if excess > 0:
            high, over = t, excess
        else:
            low, under = t, excess
        if high - low < _AFFORDABLE_TOLERANCE * high:
            break
    return high


def _from_sample(part: StageClasses, water: float, tolerance: float) -> Estimate:
    rising = part.cap > water
    if not rising.any():
        rising = part.cap >= part.cap.max()
    total = float(part.count.sum())
    at_cap = np.bincount(part.gain[:, ~rising].argmax(axis=0), part.held[~rising], len(part.gain))
    room = np.maximum(part.capacity - at_cap, 0.02 * part.capacity) / total
    gain = np.ascontiguousarray(part.gain[:, rising])
    weight = part.count[rising] / total
    return interior_prices(InteriorProblem(gain, part.size[rising], weight, room), tolerance)


def _correct(classes: StageClasses, guess: Estimate) -> tuple[Estimate, float]:
    """Return the estimate after quasi-Newton steps on everyone, and the imbalance left.

    Every step starts from the best point so far; a failed one still teaches the response.
    """
    total, width = float(classes.count.sum()), len(classes.gain)
    room = classes.capacity / total
    matrix, best, least = guess.matrix.copy(), guess, np.inf
    # The exact program places the use of a handful of classes; of very many, the least clear
    # are examined separately, which costs less than another pass over all.
    enough = max(12.0 / len(classes.held), _FINE)
    t, prices, stale = guess.t, guess.prices, 0
    base, step = np.zeros(width), np.zeros(width + 1)
    for _ in range(_MAX_CORRECTIONS):
        over = (classes.use(t, prices) - classes.capacity) / total
        left = imbalance(over, prices, room)
        if least < np.inf:  # Broyden: the response must explain the step
            miss = over - base - (matrix[:width] * step).sum(axis=1)
            matrix[:width] += miss[:, None] * step / (step * step).sum()
        stale = stale + 1 if left > 0.5 * least else 0
        if left < least:
            least, base = left, over
            best = Estimate(t, prices, matrix)
        if least < enough or stale == (2 if least < _GOOD + enough else 4):
            break
        step = _step(matrix, base, best, room)
        t, prices = best.t + float(step[width]), best.prices + step[:width]
    return best, least


def _step(matrix: FloatArray, over: FloatArray, at: Estimate, room: FloatArray) -> FloatArray:
    """Return the step in prices and t that should remove the excess ``over``."""
    width, prices = len(over), at.prices
    worth = prices * room
    cheap = worth < 0.05 * worth.sum()
    # A resource with room that is worth next to nothing is free, and out of the system.
    idle = (over < 0) & (worth < 2e-4 * worth.sum())
    rows = np.append(~idle, True)
    step = np.zeros(width + 1)
    step[rows] = np.linalg.solve(matrix[np.ix_(rows, rows)], np.append(-over[~idle], 0.0))
    up = 0.3 * np.maximum(prices, 0.02 * prices.max())
    down = np.where(cheap, 0.9, 0.3) * prices
    step[:width] = np.where(idle, -prices, np.clip(step[:width], -down, up))
    step[width] = np.clip(step[width], -0.1 * at.t, 0.1 * at.t)
    return step
