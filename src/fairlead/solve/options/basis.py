"""The basis of a solved program over options, by keys that mean the same in the next program.

Successive programs have most classes in common, so the last basis is near the next one's. It
decides only how long a solve takes: HiGHS repairs a basis that does not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from fairlead.model.arrays import BoolArray, FloatArray, is_among
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.vertex import OptionVertex

Keys = npt.NDArray[np.uint64]

_BASIC = highspy.HighsBasisStatus.kBasic
_LOWER = highspy.HighsBasisStatus.kLower
_UPPER = highspy.HighsBasisStatus.kUpper

# Options that cost this little more than they bring, a device's price being about 1, are likely to
# be used next time.
NEAR = 0.05
# Odd, so that multiplication permutes the 64-bit integers.
_FIRST, _SECOND, _PLACE = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def option_keys(problem: OptionProblem, keys: Keys) -> Keys:
    """Return options → key made of its classes' ``keys`` and its resource."""
    code = keys + np.uint64(1)
    second = np.zeros(len(problem.second), np.uint64)
    second[problem.paired] = code[problem.second[problem.paired]]
    mixed: Keys = code[problem.first] * _FIRST + second * _SECOND
    mixed ^= mixed >> np.uint64(29)
    return (mixed + problem.resource.astype(np.uint64)) * _PLACE


@dataclass(frozen=True, slots=True, eq=False)
class LastBasis:
    """The basis at which a climb first stopped, and the options used there and in the end."""

    resource: BoolArray
    """resources → some devices were left"""
    classes: Keys
    """keys of the classes, ascending"""
    level: BoolArray
    """classes in that order → its level had no price"""
    time: BoolArray
    """classes in that order → its members' time had no price"""
    basic: Keys
    """keys of the options with time, ascending"""
    used: Keys
    """keys of the options to begin with, ascending"""

    @classmethod
    def of(
        cls, classes: Keys, options: Keys, vertices: Sequence[OptionVertex], time: FloatArray
    ) -> "LastBasis":
        """Return the basis of the first vertex, and all options that the vertices used.

        ``time`` (options) is that of the solution.
        """
        first = vertices[0]
        order = np.argsort(classes)
        basic = first.time > 0
        used = basic | (time > 0)
        for vertex in vertices[1:]:
            used |= vertex.time > 0
        near = (first.surplus < NEAR).nonzero()[0]
        if len(near) > 2 * len(classes):
            near = near[np.argsort(first.surplus[near], kind="stable")[: 2 * len(classes)]]
        used[near] = True
        return cls(
            resource=first.prices == 0,
            classes=classes[order],
            level=(first.level_price == 0)[order],
            time=(first.time_price == 0)[order],
            basic=np.sort(options[basic]),
            used=np.sort(options[used]),
        )

    def columns(self, options: Keys) -> BoolArray:
        """Return options → used last time."""
        return is_among(options, self.used)

    def statuses(self, classes: Keys, options: Keys, width: int) -> tuple[list[Any], list[Any]]:
        """Return the statuses of the options with these keys, and of the rows but the extra ones.

        New classes begin with nothing, so that their rows are basic.
        """
        column = [_BASIC if is_basic else _LOWER for is_basic in is_among(options, self.basic)]
        at = np.minimum(np.searchsorted(self.classes, classes), len(self.classes) - 1)
        new = self.classes[at] != classes
        free = self.resource if len(self.resource) == width else np.ones(width, bool)
        row = [_BASIC if is_basic else _UPPER for is_basic in free]
        row += [_BASIC if is_basic else _LOWER for is_basic in self.level[at] | new]
        row += [_BASIC if is_basic else _UPPER for is_basic in self.time[at] | new]
        return column, row
