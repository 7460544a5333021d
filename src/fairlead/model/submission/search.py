"""Hyperparameter searches: the space, the metric, the budget and the strategy.

`Search` is the declaration of its fields: search files (`fairlead.files.search_file`) and
``fairlead.tune`` read it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fairlead.model.errors import InputError, require

Value = str | int | float
"""value of a hyperparameter"""
Direction = Literal["maximize", "minimize"]
Sampler = Literal["random", "grid"]
StrategyName = Literal["feedback", "asha", "hyperband", "pbt", "none"]
MAX_TRIALS = 10_000
_DIGITS = 6
_STEP = 0.2
"""part by which population-based training changes a number"""


@dataclass(frozen=True, slots=True)
class Choices:
    """A hyperparameter with listed values."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError("no values", fix="expected a list such as [sgd, adam]")
        if len(set(self.values)) != len(self.values):
            raise InputError("duplicate value", fix="expected each value once")

    def at(self, quantile: float) -> Value:
        """Return the value at a quantile from 0 to below 1."""
        return self.values[int(quantile * len(self.values))]

    def beside(self, value: Value, *, up: bool) -> Value:
        """Return the next listed value, or the one before; the value itself at an end."""
        place = self.values.index(value) + (1 if up else -1)
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def listed(self) -> tuple[Value, ...]:
        """Return all values."""
        return self.values


@dataclass(frozen=True, slots=True)
class Range:
    """A hyperparameter with a range of numbers, both ends included."""

    low: float
    high: float
    log: bool = False
    """whether the logarithm is uniform"""
    whole: bool = False
    """whether only whole numbers are allowed"""
    points: int | None = None
    """number of values in a grid"""

    def __post_init__(self) -> None:
        require(math.isfinite(self.low), "low", self.low, "a finite number")
        require(self.low < self.high < math.inf, "high", self.high, f"above low, {self.low:g}")
        require(not self.log or self.low > 0, "low", self.low, "above 0 with log")
        require(self.points is None or self.points >= 2, "points", self.points, "2 or more")
        if self.whole:
            integral = self.low == int(self.low) and self.high == int(self.high)
            require(integral, "whole", (self.low, self.high), "whole numbers as low and high")

    def at(self, quantile: float) -> Value:
        """Return the value at a quantile from 0 to 1."""
        low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
        span = low * (high / low) ** quantile - low if self.log else (high - low) * quantile
        value = low + span
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def beside(self, value: Value, *, up: bool) -> Value:
        """Return a value above or below by a fifth, and at least by one if it is whole."""
        number = float(value)
        moved = number + abs(number) * (_STEP if up else -_STEP)
        if self.whole:
            least = number + (1 if up else -1)
            moved = max(moved, least) if up else min(moved, least)
            return int(min(max(round(moved), self.low), self.high))
        return min(max(float(f"{moved:.{_DIGITS}g}"), self.low), self.high)

    def listed(self) -> tuple[Value, ...]:
        """Return the values of a grid."""
        if self.points is not None:
            ends = (self.low, self.high)
            inner = [self.at(i / (self.points - 1)) for i in range(1, self.points - 1)]
            values = [ends[0], *inner, ends[1]]
            return tuple(dict.fromkeys(int(v) if self.whole else v for v in values))
        if self.whole:
            return tuple(range(int(self.low), int(self.high) + 1))
        fix = "expected points, the number of values in the grid, or a list"
        raise InputError("a range without points in a grid", fix=fix)


Parameter = Choices | Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A hyperparameter search."""

    name: str
    space: Mapping[str, Parameter]
    metric: str
    """name of the metric that the trials report"""
    direction: Direction = "maximize"
    trials: int | None = None
    """number of trials; None: all of a grid"""
    sampler: Sampler = "random"
    strategy: StrategyName = "feedback"
    seed: int = 0
    target: float | None = None
    """value of the metric at which the search ends"""
    parallel: int | None = None
    """maximum number of unfinished trials; None: all with ``feedback`` and ``pbt``, else 4"""
    exclusive: int = 2
    """number of the most promising trials that need not share their devices"""
    min_steps: int | None = None
    """steps before a trial may be stopped early; None: a hundredth of its steps"""
    device_hours: float | None = None
    """device hours after which the search ends"""
    interval_steps: int | None = None
    """steps between two comparisons with ``pbt``; None: a tenth of a trial's steps"""
    quantile: float = 0.25
    """part of the population that ``pbt`` replaces, and part that it clones"""
    perturb: tuple[str, ...] | None = None
    """hyperparameters that a clone changes; None: ranges of numbers that need not be whole"""

    def __post_init__(self) -> None:
        plain = bool(self.name) and self.name.isprintable() and "/" not in self.name
        require(plain and len(self.name) <= 100, "name", self.name, "1 to 100 characters, no /")
        if not self.space:
            raise InputError("no hyperparameters", fix="expected at least one", field="space")
        for label in self.space:
            fix = "expected a letter, then letters, digits or underscores"
            if not label.isidentifier() or label in ("index", "trial"):
                raise InputError(f"not a usable name: {label!r}", fix=fix, field="space")
        for field, known in _CHOICES.items():
            require(getattr(self, field) in known, field, getattr(self, field), " or ".join(known))
        if self.sampler == "random" and self.trials is None:
            fix = "expected the number of trials"
            raise InputError("missing", fix=fix, field="trials")
        for field, most in _MOST.items():
            number = getattr(self, field)
            require(number is None or 1 <= number <= most, field, number, f"1 to {most:,}")
        hours = self.device_hours
        require(hours is None or 0 < hours < math.inf, "device_hours", hours, "above 0")
        require(self.target is None or math.isfinite(self.target), "target", self.target, "finite")
        self._check_population()

    def _check_population(self) -> None:
        require(0 < self.quantile <= 0.5, "quantile", self.quantile, "above 0 and at most 0.5")
        for label in self.perturb or ():
            require(label in self.space, "perturb", label, f"one of {', '.join(self.space)}")
        if self.strategy == "pbt" and self.parallel is not None:
            fix = "expected trials, the size of the population, all of which run together"
            raise InputError("not used by pbt", fix=fix, field="parallel")

    @property
    def perturbed(self) -> tuple[str, ...]:
        """Hyperparameters that a clone changes."""
        if self.perturb is not None:
            return self.perturb
        ranges = {k: v for k, v in self.space.items() if isinstance(v, Range)}
        return tuple(label for label, values in ranges.items() if not values.whole)

    @property
    def sign(self) -> float:
        """1 if large values of the metric are good, else -1."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def max_unfinished(self) -> int:
        """Maximum number of unfinished trials at a time."""
        if self.parallel is not None:
            return self.parallel
        return MAX_TRIALS if self.strategy in ("feedback", "pbt") else 4


_MOST = {
    **dict.fromkeys(("trials", "parallel", "exclusive"), MAX_TRIALS),
    **dict.fromkeys(("min_steps", "interval_steps"), 10**12),
}
"""greatest values of counts"""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "direction": get_args(Direction),
    "sampler": get_args(Sampler),
    "strategy": get_args(StrategyName),
}
