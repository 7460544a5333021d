"""The cheapest way to a level at given prices: a point on a lower convex hull, for all classes.

A member of class k that reaches level L pays at least the height at L of the lower convex hull
of the points (0, 0) and (gain_kj, worth_kj), worth being size times price. The hull's segment
over L joins two resources, or the origin (idleness) and one: the only ones it needs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairlead.model.arrays import BoolArray, FloatArray

ByteArray = npt.NDArray[np.int8]

# A block of classes whose temporaries stay in the second-level cache.
BLOCK = 8192
_TIE = 1e-14
_HUGE = 1e200


@dataclass(frozen=True, slots=True)
class Segments:
    """For every class the segment of its hull over a level; resource -1 is the origin."""

    cost: FloatArray
    slope: FloatArray
    low: ByteArray
    high: ByteArray


class Hulls:
    """The hulls of classes whose gains are known, at any prices and levels."""

    def __init__(self, gain: FloatArray) -> None:
        self._gain = gain  # resources × classes
        self._pairs = [(a, b) for b in range(len(gain)) for a in range(-1, b)]
        low, high = np.array(self._pairs).T
        bottom, top = gain[low], gain[high]
        bottom[low < 0] = 0.0
        rise = top - bottom
        # A pair of equal gains spans nothing, and one with a zero gain what the origin spans.
        empty = (top <= 0) | (bottom <= 0) & (low >= 0)[:, None] | (rise == 0)
        self._inverse = np.divide(1.0, rise, out=np.zeros_like(rise), where=~empty)
        self._empty: BoolArray = np.logical_or.reduce(empty, axis=1)
        # Codes are floats where they are chosen by np.where, which is slow on small integers.
        number = np.arange(len(self._pairs), dtype=np.float64)[:, None]
        self._code = np.where(rise < 0, -1.0 - number, number)
        ends = np.array(self._pairs, np.int8)
        both = np.concatenate([ends, ends[::-1, ::-1]])  # a negative code swaps low and high
        self._low, self._high = np.ascontiguousarray(both.T)

    def segments_at(
        self,
        level: FloatArray,
        worth: FloatArray,
        among: slice | None = None,
        *,
        careful: bool = False,
        slopes: bool = True,
    ) -> Segments:
        """Return the segments over ``level``, no class's above its greatest gain.

        ``level`` and ``worth`` are those of the classes ``among``, by default of all. Where the
        level stands on a kink, any segment that ends there may be returned; a ``careful``
        search returns the hull's own below the kink. Without ``slopes`` they are left 0.
        """
        first, classes = among.start if among else 0, len(level)
        cost, slope = np.empty(classes), np.empty(classes)
        code = np.empty(classes)
        with np.errstate(over="ignore"):
            for start in range(0, classes, BLOCK):
                part = slice(start, start + BLOCK)
                whole = slice(first + start, first + min(start + BLOCK, classes))
                cost[part], slope[part], code[part] = self._search(
                    whole, level[part], worth[:, part], careful, slopes
                )
        index = code.astype(np.int64)
        return Segments(cost, slope, self._low[index], self._high[index])

    def _search(
        self, part: slice, level: FloatArray, worth: FloatArray, careful: bool, slopes: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        cost = np.full(len(level), np.inf)
        slope, code = np.zeros(len(level)), np.zeros(len(level))
        above = self._gain[:, part] - level
        for number, (a, b) in enumerate(self._pairs):
            inverse = self._inverse[number, part]
            if a < 0:
                tilt = worth[b] * inverse
                value = tilt * level
                outside = above[b] * -_HUGE
            else:
                tilt = (worth[b] - worth[a]) * inverse
                value = (worth[a] * above[b] - worth[b] * above[a]) * inverse
                outside = above[a] * above[b] * _HUGE
            if self._empty[number]:
                outside = np.where(inverse == 0, _HUGE, outside)
            # The pair spans the level where ``outside`` is not positive.
            np.maximum(value, outside, out=value)
            better = value < cost
            if careful:
                # Of the segments that end where the level stands, the steepest is the hull's.
                tied = (value <= cost * (1 + _TIE)) & (tilt > slope)
                better = (value < cost * (1 - _TIE)) | tied
            if slopes:
                slope = np.where(better, tilt, slope)
            code = np.where(better, self._code[number, part], code)
            np.minimum(cost, value, out=cost)
        return cost, slope, code


class CostCurves:
    """The cost of every level at fixed prices: each class's hull as the greatest of its lines.

    Building it costs about as much as one search for segments, and each look at other levels
    far less.
    """

    def __init__(self, gain: FloatArray, worth: FloatArray) -> None:
        width, classes = gain.shape
        shape = (width, classes)
        self._from, self._cost, self._slope = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        index, at, paid = np.arange(classes), np.zeros(classes), np.zeros(classes)
        # From the origin on, the next corner is where the slope is least.
        for edge in range(width):
            ahead = gain - at
            slope = np.divide(worth - paid, ahead, out=np.full(shape, np.inf), where=ahead > 0)
            corner = slope.argmin(axis=0)
            least = slope[corner, index]
            done = least == np.inf
            if edge and done.all():
                self._from, self._cost = self._from[:edge], self._cost[:edge]
                self._slope = self._slope[:edge]
                break
            last = max(edge - 1, 0)
            self._from[edge] = np.where(done, self._from[last], at)
            self._cost[edge] = np.where(done, self._cost[last], paid)
            self._slope[edge] = np.where(done, self._slope[last], least)
            at = np.where(done, at, gain[corner, index])
            paid = np.where(done, paid, worth[corner, index])

    def cost(self, level: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return classes → cost of a level up to the cap, and its slope, steeper at a corner."""
        cost: FloatArray = self._cost[0] + self._slope[0] * (level - self._from[0])
        slope = self._slope[0]
        for start, paid, steeper in zip(
            self._from[1:], self._cost[1:], self._slope[1:], strict=True
        ):
            value = paid + steeper * (level - start)
            slope = np.where(value >= cost, steeper, slope)
            cost = np.maximum(cost, value)
        return cost, slope
