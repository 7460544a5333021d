"""The units and homes of Gandiva's memory as arrays."""

from collections import deque
from itertools import chain
from typing import NamedTuple

import numpy as np

from fairlead.mechanisms.gandiva.memory import HomeItems
from fairlead.model.arrays import IntArray


class UnitArrays(NamedTuple):
    """The units of a memory as arrays."""

    size: IntArray
    """units → number of jobs"""
    job: IntArray
    """all their jobs, unit by unit"""
    home: IntArray
    """servers of the homes, unit by unit"""
    need: IntArray
    """devices on each of these servers"""

    @property
    def are_spread(self) -> bool:
        """Whether a unit has a home on several servers."""
        return len(self.home) > len(self.size)

    @property
    def are_single(self) -> bool:
        """Whether every unit is one job with a home on one server."""
        return len(self.size) == len(self.job) == len(self.home)


Units = tuple[tuple[int, ...], ...]
Homes = tuple[HomeItems, ...]
_recent: deque[tuple[Units, Homes, UnitArrays]] = deque(maxlen=4)


def unit_arrays(units: Units, homes: Homes) -> UnitArrays:
    """Return the units and homes of a memory as arrays.

    Most slices leave both as they are, so that the last results are kept, by identity: hashing
    them would take as long as making the arrays.
    """
    for known_units, known_homes, arrays in tuple(_recent):
        if known_units is units and known_homes is homes:
            return arrays
    size = np.array(list(map(len, units)), dtype=np.int64)
    job = np.fromiter(chain.from_iterable(units), np.int64)
    numbers = chain.from_iterable(chain.from_iterable(homes))
    home, need = np.fromiter(numbers, np.int64).reshape(-1, 2).T
    return keep_arrays(units, homes, UnitArrays(size, job, home, need))


def keep_arrays(units: Units, homes: Homes, arrays: UnitArrays) -> UnitArrays:
    """Remember these units and homes as arrays."""
    _recent.append((units, homes, arrays))
    return arrays
