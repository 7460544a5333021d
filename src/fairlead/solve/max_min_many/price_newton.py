"""Newton's method on the use of the resources by very many classes, for nearly exact prices.

A single class changes its way abruptly with the prices, but the use of tens of thousands of
classes is almost smooth. Finite differences on a part of them give its slope.
"""

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.max_min_many.pricing import StageClasses, spread_indices

_MAX_STEPS = 8
_MIN_DAMPING = 0.1
_PRICE_STEP = 5e-3  # relative, for differences
_LEVEL_STEP = 1e-4
_LEAST_PART = 50_000
_PART = 8  # one class in so many gives the slope
_FEW_CLASSES = 12  # that the exact program soon puts in place
_FINE = 1e-5
_CHEAP = 1e-2  # of the worth of all resources: may well be free


def imbalance(over: FloatArray, prices: FloatArray, room: FloatArray) -> float:
    """Return the worth of what is used too much or left over, relative to that of all room."""
    rate = np.where(over > 0, np.maximum(prices, 0.02 * prices.max()), prices)
    return float((rate * np.abs(over)).sum() / (prices * room).sum())


def refine_prices(classes: StageClasses, t: float, prices: FloatArray) -> tuple[float, FloatArray]:
    """Return a level and prices at which the classes use the resources more evenly.

    Stops where Newton's steps, even short ones, bring no gain. The dearest price stays.
    """
    population, total = len(classes.size), float(classes.count.sum())
    room = classes.capacity / total
    part = classes.sample(spread_indices(population, max(_LEAST_PART, population // _PART)))
    enough = max(_FEW_CLASSES / population, _FINE)

    def excess(t: float, prices: FloatArray) -> FloatArray:
        over: FloatArray = (classes.use(t, prices) - classes.capacity) / total
        return over

    over = excess(t, prices)
    least, slope, damping = imbalance(over, prices, room), None, 1.0
    for _ in range(_MAX_STEPS):
        if least < enough or damping < _MIN_DAMPING:
            break
        if slope is None:
            slope = _slope(part, t, prices)
        step = damping * _newton_step(slope, over, prices, room)
        next_t, next_prices = t + float(step[-1]), np.maximum(prices + step[:-1], 0.0)
        next_over = excess(next_t, next_prices)
        left = imbalance(next_over, next_prices, room)
        if left > 0.5 * least:
            slope = None
        if left < least:
            t, prices, over, least, damping = next_t, next_prices, next_over, left, 1.0
        else:
            damping *= 0.5
    return t, prices


def _slope(part: StageClasses, t: float, prices: FloatArray) -> FloatArray:
    """Return resources × (prices, t) → change of the use by a member on average."""
    total = float(part.count.sum())
    base = part.use(t, prices)
    columns = []
    for j, price in enumerate(prices.tolist()):
        step = _PRICE_STEP * max(price, 0.02 * float(prices.max()))
        moved = prices.copy()
        moved[j] += step
        columns.append((part.use(t, moved) - base) / (step * total))
    step = _LEVEL_STEP * t
    columns.append((part.use(t + step, prices) - base) / (step * total))
    return np.column_stack(columns)


def _newton_step(
    slope: FloatArray, over: FloatArray, prices: FloatArray, room: FloatArray
) -> FloatArray:
    """Return the step in prices and t after which the classes should just fit.

    Cheap resources with room to spare become free if the step would make them so, or if their
    price has no effect.
    """
    paid: BoolArray = (prices > 0) | (over > 0)
    step = _solve(slope, over, paid, int(prices.argmax()))
    worth = prices * room
    no_effect = np.abs(slope[:, :-1]).max(axis=0) * prices < 1e-9
    cheap = worth < _CHEAP * worth.sum()
    free = paid & (over <= 0) & ((prices + step[:-1] <= 0) | (no_effect & cheap))
    if not free.any() or not (paid & ~free).any():
        return step
    dropped = np.where(free, -prices, 0.0)
    after = over + slope[:, :-1] @ dropped
    step = _solve(slope, after, paid & ~free, int(prices.argmax()))
    step[:-1] += dropped
    return step


def _solve(slope: FloatArray, over: FloatArray, paid: BoolArray, fixed: int) -> FloatArray:
    """Return the step that removes the excess of the paid resources; one price stays fixed."""
    moving: IntArray = np.flatnonzero(np.append(paid, True))
    moving = moving[moving != fixed]
    step = np.zeros(len(paid) + 1)
    step[moving] = np.linalg.lstsq(slope[np.ix_(paid, moving)], -over[paid], rcond=None)[0]
    return step
