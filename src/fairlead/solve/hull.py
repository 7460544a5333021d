"""The cheapest way to a level at given prices: a point on a lower convex hull, for all classes.

A member of class k that reaches level L pays at least the height at L of the lower convex hull
of the points (0, 0) and (gain_kj, worth_kj), worth being size times price. The hull's segment
over L joins two resources, or the origin (idleness) and one: the only ones it needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairlead.solve.arrays import FloatArray

ByteArray = npt.NDArray[np.int8]

# A block of classes whose temporaries stay in the second-level cache.
_BLOCK = 8192
_TIE = 1e-14


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
        width = len(gain)
        self._pairs = [(a, b) for b in range(width) for a in range(-1, b)]
        with np.errstate(divide="ignore"):
            self._inverse = np.stack(
                [1.0 / (gain[b] - (gain[a] if a >= 0 else 0.0)) for a, b in self._pairs]
            )

    def over(self, level: FloatArray, worth: FloatArray, *, careful: bool = False) -> Segments:
        """Return the segments over ``level``, no class's above its greatest gain.

        Where the level stands on a kink, any segment that ends there may be returned; a
        ``careful`` search returns the hull's own below the kink.
        """
        classes = len(level)
        cost, slope = np.full(classes, np.inf), np.zeros(classes)
        chosen = np.zeros(classes, np.int8)
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, classes, _BLOCK):
                block = slice(start, start + _BLOCK)
                search = _careful_search if careful else _search
                search(
                    self._pairs,
                    (self._gain[:, block], worth[:, block], self._inverse[:, block], level[block]),
                    (cost[block], slope[block], chosen[block]),
                )
        ends = np.array(self._pairs, np.int8).T
        a, b = ends[0][chosen], ends[1][chosen]
        index = np.arange(classes)
        ascending = (a < 0) | (self._gain[a, index] < self._gain[b, index])
        return Segments(cost, slope, np.where(ascending, a, b), np.where(ascending, b, a))


_Given = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
_Found = tuple[FloatArray, FloatArray, ByteArray]


def _search(pairs: list[tuple[int, int]], given: _Given, found: _Found) -> None:
    cost, slope, chosen = found
    for number, tilt, value in _candidates(pairs, given):
        better = value < cost
        np.copyto(cost, value, where=better)
        np.copyto(slope, tilt, where=better)
        np.copyto(chosen, number, where=better)


def _careful_search(pairs: list[tuple[int, int]], given: _Given, found: _Found) -> None:
    cost, slope, chosen = found
    for number, tilt, value in _candidates(pairs, given):
        # Of the segments that end where the level stands, the steepest is the hull's.
        tied = (value <= cost * (1 + _TIE)) & (tilt > slope)
        better = (value < cost * (1 - _TIE)) | tied
        np.copyto(slope, tilt, where=better)
        np.copyto(chosen, number, where=better)
        np.copyto(cost, value, where=value < cost)


def _candidates(
    pairs: list[tuple[int, int]], given: _Given
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Yield every pair's number, slope and cost; infinite where it does not span the level."""
    gain, worth, inverse, level = given
    above = gain - level
    for number, (a, b) in enumerate(pairs):
        if a < 0:
            tilt = worth[b] * inverse[number]
            value = tilt * level
            np.copyto(value, np.inf, where=above[b] < 0)
        else:
            tilt = (worth[b] - worth[a]) * inverse[number]
            value = worth[a] - tilt * above[a]
            np.copyto(value, np.inf, where=above[a] * above[b] > 0)
        yield number, tilt, value
