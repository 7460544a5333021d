"""Options of which only those that can matter are listed, and the prices that tell which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.solve.options.basis import Keys
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.vertex import OptionVertex

# Relative to the greatest price: what lacks so little at the last prices is listed at once. Less
# makes programs smaller; more leaves fewer to be solved again with an option that was missing.
NEAR = 0.01

Sum = tuple[OptionProblem, FloatArray]
"""a problem, and options → value"""


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of what an option needs, and the worth of what it brings."""

    device: FloatArray
    """resources → price of a device"""
    time: FloatArray
    """classes → price of a member's time"""
    level: FloatArray
    """classes → worth of a member's level; NaN: what an option of one member costs"""
    value: float = 1.0
    """worth of a unit of value"""

    @classmethod
    def of(cls, vertex: OptionVertex, unit: float, *, value: float = 1.0) -> "Prices":
        """Return the prices of a vertex in units of which its own is ``unit``."""
        return cls(
            vertex.prices * unit, vertex.time_price * unit, vertex.level_price * unit, value
        )

    @property
    def greatest(self) -> float:
        """The greatest price of a device or of a member's time."""
        return max(float(self.device.max(initial=0.0)), float(self.time.max(initial=0.0)))


class OptionPool(Protocol):
    """Options of which only those that can matter are listed."""

    @property
    def resources(self) -> int:
        """The number of resources."""
        ...

    def add_fastest(self) -> None:
        """List the options that some class's greatest gain is from."""
        ...

    def add_near(self, prices: Prices, limit: float) -> bool:
        """List all options that lack at most ``limit`` at these prices; tell if any is new.

        An option lacks what its devices and its members' time cost more than it is worth.
        """
        ...

    def add_all(self) -> None:
        """List all options."""
        ...

    def listed(self) -> Sum:
        """Return the problem of the options listed so far, and their values."""
        ...

    def all(self) -> Sum:
        """Return the problem of all options, and their values."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AllOptions:
    """An ``OptionPool`` with every option listed."""

    problem: OptionProblem
    value: FloatArray

    @property
    def resources(self) -> int:
        """The number of resources."""
        return len(self.problem.capacity)

    def add_fastest(self) -> None:
        """Add nothing: all options are listed."""

    def add_near(self, prices: Prices, limit: float) -> bool:
        """Tell that no option is new."""
        del prices, limit
        return False

    def add_all(self) -> None:
        """Add nothing: all options are listed."""

    def listed(self) -> Sum:
        """Return the problem and the values."""
        return self.problem, self.value

    def all(self) -> Sum:
        """Return the problem and the values."""
        return self.problem, self.value


@dataclass(frozen=True, slots=True, eq=False)
class LastPrices:
    """The prices of a solution, by keys that mean the same in the next one."""

    keys: Keys
    """keys of the classes, ascending"""
    prices: Prices
    """classes in that order; levels in units of those of the problem"""

    @classmethod
    def of(cls, keys: Keys, prices: Prices, unit: float = 1.0) -> "LastPrices":
        """Return the prices of the classes with these keys; levels are in proportion to unit."""
        order = np.argsort(keys)
        time, level = prices.time[order], prices.level[order] * unit
        return cls(keys[order], Prices(prices.device, time, level, prices.value))

    def of_classes(self, keys: Keys, unit: float = 1.0) -> Prices:
        """Return the prices of these classes; the time of new ones costs nothing.

        Where nothing but levels has a worth, a new class's is not known; else it is 0.
        """
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known, last = self.keys[at] == keys, self.prices
        time = np.where(known, last.time[at], 0.0)
        level = np.where(known, last.level[at] / unit, 0.0 if last.value else np.nan)
        return Prices(last.device, time, level, last.value)


def add_near_last(
    pool: OptionPool, last: Sequence[LastPrices], keys: Keys, unit: float = 1.0
) -> None:
    """List the options that are near at the last prices; all if there are none."""
    fits = [prices for prices in last if len(prices.prices.device) == pool.resources]
    if not fits:
        pool.add_all()
    for each in fits:
        prices = each.of_classes(keys, unit)
        pool.add_near(prices, NEAR * prices.greatest)
