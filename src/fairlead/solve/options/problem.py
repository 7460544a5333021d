"""Ways to use divisible resources that one or two members of classes share.

An *option* is one such way: it holds ``size`` devices of one resource while it runs, and each of
its members gains from it. With y_o the total time of option o, over all its members,

    Σ_o memberships_ok y_o <= n_k            a member has no more than all its time
    Σ_o size_o y_o <= capacity_j             over the options of resource j
    level_k = Σ_o gain_ok y_o / n_k          the same for every member of class k.

Members of a class are alike, so averaging any allocation over them keeps all rows: nothing is
lost by asking for class totals only.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import Columns

NO_PARTNER = -1
"""instead of a second class: the option has one member"""

# The tie rule's perturbation, relative to an option's device time: far above HiGHS's dual
# tolerance, so that it decides every tie, and too small to matter where device times differ.
_TIE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class ExtraRows:
    """Further bounds on the options' times: lower <= A y <= upper, ±inf where absent."""

    matrix: Columns
    """rows × options, by columns"""
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class OptionProblem:
    """Classes of alike members, the resources they share and the options they have."""

    count: FloatArray
    """classes → members"""
    capacity: FloatArray
    """resources → devices"""
    resource: IntArray
    """options → resource"""
    size: FloatArray
    """options → devices held"""
    first: IntArray
    """options → class of the first member"""
    second: IntArray
    """options → class of the second member, or NO_PARTNER; the first's for two of one class"""
    gain_first: FloatArray
    """options → what a unit of time adds to the first member's level"""
    gain_second: FloatArray
    """options → what it adds to the second member's; 0 where there is none"""
    tie: FloatArray
    """options → a number in [0, 1) that decides between equal device times"""
    extra: ExtraRows | None = None

    def __post_init__(self) -> None:
        options = len(self.resource)
        for name in ("size", "first", "second", "gain_first", "gain_second", "tie"):
            if getattr(self, name).shape != (options,):
                self._refuse(f"{name} has not one entry an option")
        if options and not (self.size > 0).all():
            self._refuse("size must be above 0")
        for name in ("count", "capacity", "gain_first", "gain_second"):
            values = getattr(self, name)
            if not (np.isfinite(values).all() and (values >= 0).all()):
                self._refuse(f"{name} must be finite and at least 0")
        twins = (self.first == self.second) & (self.count[self.first] < 2)
        if twins.any():
            self._refuse("two members of a class with fewer cannot share devices")

    def _refuse(self, why: str) -> None:
        raise SolveError(
            f"malformed problem: {why}", status="malformed", n_classes=len(self.count)
        )

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.count)

    @cached_property
    def paired(self) -> BoolArray:
        """options → it has two members."""
        paired: BoolArray = self.second != NO_PARTNER
        return paired

    @cached_property
    def twins(self) -> BoolArray:
        """options → its members are of one class."""
        twins: BoolArray = self.first == self.second
        return twins

    @cached_property
    def cap(self) -> FloatArray:
        """classes → greatest gain on an option: no level exceeds it; 0 where it cannot run."""
        cap = np.zeros(self.classes)
        # Two of one class take turns in both places.
        mean = (self.gain_first + self.gain_second) / 2
        np.maximum.at(cap, self.first, np.where(self.twins, mean, self.gain_first))
        two = self.paired & ~self.twins
        np.maximum.at(cap, self.second[two], self.gain_second[two])
        return cap

    @cached_property
    def device_time(self) -> FloatArray:
        """options → devices held, perturbed so that no two sets of options weigh the same."""
        return self.size * (1.0 + _TIE * self.tie)

    @cached_property
    def matrix(self) -> Columns:
        """Rows × options: the resources, the classes' levels, their times, the extra rows."""
        return self.columns(np.arange(len(self.resource)))

    def columns(self, options: IntArray, *, levels: bool = True) -> Columns:
        """Return the matrix of some of the options, in this order.

        Without ``levels``, the rows of the levels are empty.
        """
        width, classes = len(self.capacity), self.classes
        resource, first, second = self._place[:, options]
        size, gain, uses, gain_second = self._use[:, options]
        two = second < classes
        row = np.empty((len(options), 5), np.int64)
        value = np.empty((len(options), 5))
        row[:, 0], value[:, 0] = resource, size
        row[:, 1], value[:, 1] = width + first, gain
        row[:, 2], value[:, 2] = width + second, gain_second
        row[:, 3], value[:, 3] = width + classes + first, uses
        row[:, 4], value[:, 4] = width + classes + second, 1.0
        there = np.ones((len(options), 5), bool)
        there[:, 1] = levels
        there[:, 2] = two & levels
        there[:, 4] = two
        start = np.zeros(len(options) + 1, np.int64)
        np.cumsum(3 + 2 * two if levels else 2 + two, out=start[1:])
        own = Columns(start, row[there], value[there])
        if self.extra is None:
            return own
        more = self.extra.matrix.columns(options)
        return own.with_rows(replace(more, row=width + 2 * classes + more.row))

    @cached_property
    def _place(self) -> IntArray:
        """3 × options → resource, class of the first member, and that of the second.

        The latter is the number of classes where the second member adds no rows.
        """
        other = np.where(self.paired & ~self.twins, self.second, self.classes)
        return np.array([self.resource, self.first, other], dtype=np.int64)

    @cached_property
    def _use(self) -> FloatArray:
        """4 × options → size, gain and number of members of the first class, second gain."""
        gain = self.gain_first + np.where(self.twins, self.gain_second, 0.0)
        return np.array([self.size, gain, 1.0 + self.twins, self.gain_second])

    def priced(self, dual: FloatArray) -> FloatArray:
        """Return options → what the rows' duals say it is worth: Aᵀ dual."""
        width, classes = len(self.capacity), self.classes
        price, extra = dual[:width], dual[width + 2 * classes :]
        # Members that there are not have the price 0 after those of all classes.
        level, time = np.zeros(classes + 1), np.zeros(classes + 1)
        level[:-1] = dual[width : width + classes]
        time[:-1] = dual[width + classes : width + 2 * classes]
        if compiled is not None:
            worth = np.empty(len(self.resource))
            compiled.price_options(self._use, self._place, price, level, time, worth)
        else:
            (size, gain, uses, gain_second), (resource, first, other) = self._use, self._place
            worth = size * price[resource]
            worth += gain * level[first]
            worth += uses * time[first]
            worth += gain_second * level[other]
            worth += time[other]
        return worth if self.extra is None else worth + self.extra.matrix.priced(extra)

    def least_per_gain(self, cost: FloatArray) -> FloatArray:
        """Return classes → the least cost of a gain of 1 by one of its options; 0 without any."""
        least = np.full(self.classes, np.inf)
        if compiled is not None:
            compiled.cheapest_gains(self._use, self._place, cost, least)
        else:
            (_, gain, _, gain_second), (_, first, other) = self._use, self._place
            own, two = gain > 0, (other < self.classes) & (gain_second > 0)
            with np.errstate(over="ignore"):  # next to no gain: too dear anyway
                np.minimum.at(least, first[own], cost[own] / gain[own])
                np.minimum.at(least, other[two], cost[two] / gain_second[two])
        return np.where(np.isinf(least), 0.0, least)

    def worth(self, dual: FloatArray, lacking: FloatArray) -> float:
        """Return what all devices, all members' time and the extra rows' bounds come to.

        ``dual`` prices the rows; ``lacking`` (options) is what the prices of its members' time
        must still be raised by for each option, and are.
        """
        width, classes = len(self.capacity), self.classes
        lift = np.zeros(classes)
        np.maximum.at(lift, self.first, np.where(self.paired, lacking / 2, lacking))
        np.maximum.at(lift, self.second[self.paired], lacking[self.paired] / 2)
        time_price = dual[width + classes : width + 2 * classes] + lift
        total = float((self.capacity * dual[:width]).sum() + (self.count * time_price).sum())
        if self.extra is not None:
            price = dual[width + 2 * classes :]
            bound = np.where(price > 0, self.extra.upper, self.extra.lower)
            total += float((np.where(price == 0, 0.0, bound) * price).sum())
        return total

    def per_class(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return classes → sum over its options of what falls to each of its members."""
        two = self.paired
        total: FloatArray = np.bincount(self.first, first, self.classes).astype(np.float64)
        total += np.bincount(self.second[two], second[two], self.classes)
        return total

    def level(self, time: FloatArray) -> FloatArray:
        """Return classes → the level that these totals of time give each member."""
        total = self.per_class(self.gain_first * time, self.gain_second * time)
        level: FloatArray = total / np.maximum(self.count, 1e-300)
        return level

    def feasible(self, time: FloatArray) -> FloatArray:
        """Return the times cleared of rounding: nothing below 0 or over time or capacity."""
        time = np.maximum(time.round(12), 0.0)
        spent = self.per_class(time, time)
        fits = np.minimum(1.0, self.count / np.maximum(spent, 1e-300))
        time = time * np.minimum(fits[self.first], np.where(self.paired, fits[self.second], 1.0))
        held = np.bincount(self.resource, self.size * time, len(self.capacity))
        room = np.minimum(1.0, self.capacity / np.maximum(held, 1e-300))
        return time * room[self.resource]
