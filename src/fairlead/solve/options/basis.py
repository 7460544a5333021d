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

from fairlead.model.arrays import BoolArray, FloatArray, IntArray, is_among
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.vertex import OptionVertex

Keys = npt.NDArray[np.uint64]

_BASIC = highspy.HighsBasisStatus.kBasic
_LOWER = highspy.HighsBasisStatus.kLower
_UPPER = highspy.HighsBasisStatus.kUpper
_LOWER_OR_BASIC = np.array([_LOWER, _BASIC], dtype=object)
_UPPER_OR_BASIC = np.array([_UPPER, _BASIC], dtype=object)

# Options that cost this little more than they bring, a device's price being about 1, are likely to
# be used next time.
LIKELY = 0.05
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
class Basics:
    """The columns and rows that are basic in a program."""

    rise: bool
    options: IntArray
    """the basic options"""
    rows: BoolArray
    """rows of the resources, the classes' levels and their times → it is basic"""


@dataclass(frozen=True, slots=True, eq=False)
class LastBasis:
    """A basis by keys, and the options to begin with."""

    rise: bool
    """the common rise is basic"""
    resource: BoolArray
    """resources → its row is basic"""
    classes: Keys
    """keys of the classes, ascending"""
    level: BoolArray
    """classes in that order → its level's row is basic"""
    time: BoolArray
    """classes in that order → its time's row is basic"""
    basic: Keys
    """keys of the basic options, ascending"""
    used: Keys
    """keys of the options to begin with, ascending"""

    @classmethod
    def of(cls, classes: Keys, options: Keys, basics: Basics, used: BoolArray) -> "LastBasis":
        """Return a basis; ``used`` are options that are likely to be used next time, too."""
        order, n_classes = np.argsort(classes), len(classes)
        width = len(basics.rows) - 2 * n_classes
        return cls(
            rise=basics.rise,
            resource=basics.rows[:width],
            classes=classes[order],
            level=basics.rows[width : width + n_classes][order],
            time=basics.rows[width + n_classes :][order],
            basic=np.sort(options[basics.options]),
            used=np.sort(options[used]),
        )

    def columns(self, options: Keys) -> BoolArray:
        """Return options → to begin with."""
        return is_among(options, self.used)

    def statuses(self, classes: Keys, options: Keys, width: int) -> tuple[list[Any], list[Any]]:
        """Return the statuses of the rise and these options, and of the rows but the extra ones.

        New classes begin with nothing, so that their rows are basic.
        """
        column = [_BASIC if self.rise else _UPPER]
        column += _LOWER_OR_BASIC[is_among(options, self.basic).view(np.int8)].tolist()
        at = np.minimum(np.searchsorted(self.classes, classes), len(self.classes) - 1)
        new = self.classes[at] != classes
        free = self.resource if len(self.resource) == width else np.ones(width, bool)
        row = _UPPER_OR_BASIC[free.view(np.int8)].tolist()
        row += _LOWER_OR_BASIC[(self.level[at] | new).view(np.int8)].tolist()
        row += _UPPER_OR_BASIC[(self.time[at] | new).view(np.int8)].tolist()
        return column, row


def likely_options(
    basics: Basics, vertices: Sequence[OptionVertex], surpluses: Sequence[FloatArray]
) -> BoolArray:
    """Return options → likely to be used in the next program: used in this one, or nearly.

    Basic ones and those of ``vertices`` were used. ``surpluses`` (options) say what use would have
    cost more, the price of a device being about 1.
    """
    used: BoolArray = np.logical_or.reduce([vertex.time > 0 for vertex in vertices])
    used[basics.options] = True
    most = 2 * len(vertices[0].level_price)
    for surplus in surpluses:
        near = (surplus < LIKELY).nonzero()[0]
        if len(near) > most:
            near = _least(surplus, near, most)
        used[near] = True
    return used


def _least(surplus: FloatArray, options: IntArray, count: int) -> IntArray:
    """Return as many of the options, with the least surplus; of equal ones the first."""
    each = surplus[options]
    last = np.partition(each, count)[count]
    below, equal = options[each < last], options[each == last]
    return np.append(below, equal[: count - len(below)])
