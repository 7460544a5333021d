"""Speeds that decisions use in place of a doubtful estimate: a quantile, or the value of a trial.

A trial of a job on another accelerator costs a round at the estimated speed instead of a known
one. It brings the measurement: if the job turns out to be faster there, it stays for all the
rounds that it has left. ``break_even`` is the known speed at which both are equal (a knowledge
gradient, as an index): decisions that use it as the speed there send the job where trying is
expected to be worth more than it costs, and nowhere else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from fairlead.model.speeds.key import SpeedKey

if TYPE_CHECKING:
    from statistics import NormalDist

MAX_FACTOR = 2.0
"""greatest factor between an estimate and the speed that decisions use"""
MOVE_ROUNDS = 0.2
"""rounds that a trial costs for moving the job there and back"""
MAX_TRIALS = 3
"""rounds after which an accelerator that gave no measurement is no longer tried"""
MAX_DOUBLINGS = 10
"""greatest logarithm, to base 2, of the rounds left that a trial is weighed against"""


@dataclass(frozen=True, slots=True)
class Trials:
    """The state of exploration that decisions depend on."""

    doublings: Mapping[str, int] = field(default_factory=dict)
    """workload → logarithm, to base 2, of the rounds that its jobs have left; unless listed, 0"""
    vain: Mapping[SpeedKey, int] = field(default_factory=dict)
    """rounds on an accelerator that have not led to a measured speed there"""

    def factor(self, key: SpeedKey, doubt: float) -> float:
        """Return the factor from the estimate to the speed at which a trial breaks even."""
        if self.vain.get(key, 0) >= MAX_TRIALS:
            return 1.0
        return break_even(doubt, self.rounds(key.workload))

    def rounds(self, workload: str) -> int:
        """Return the rounds that a workload's jobs have left, rounded down to a power of two."""
        return 1 << self.doublings.get(workload, 0)

    def saved(self) -> dict[str, Any]:
        """Return the content for ``restored``; nothing where there is none."""
        if not self.doublings and not self.vain:
            return {}
        vain = [[*key[:3], count] for key, count in self.vain.items()]
        # Pairs: a user's workload may have the name of a tag of encoded values.
        return {"doublings": list(self.doublings.items()), "vain": vain}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> "Trials":
        """Return the trials that ``saved`` wrote, or those of a state without any."""
        vain = {SpeedKey(*key): count for *key, count in saved.get("vain", ())}
        return cls(dict(saved.get("doublings", ())), vain)


def planned_factor(key: SpeedKey, doubt: float, quantile: float, trials: Trials | None) -> float:
    """Return the factor from the median of an estimate to the speed that decisions use."""
    if quantile != 0.5:
        departure = min(abs(_normal().inv_cdf(quantile)) * doubt, math.log(MAX_FACTOR))
        return math.exp(departure if quantile > 0.5 else -departure)
    return 1.0 if trials is None else trials.factor(key, doubt)


@lru_cache(maxsize=4096)
def break_even(doubt: float, rounds: int) -> float:
    """Return the known speed at which trying an estimate of 1 is worth exactly its cost.

    The estimate is log-normal with median 1 and standard deviation ``doubt`` of its logarithm.
    The result is 1 where no trial pays, and ``MAX_FACTOR`` at most.
    """
    low, high = 1.0, MAX_FACTOR
    if doubt <= 0.0 or _gain(low, doubt, rounds) <= 0.0:
        return low
    if _gain(high, doubt, rounds) >= 0.0:
        return high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _gain(middle, doubt, rounds) > 0.0 else (low, middle)
    return low


def _gain(known: float, doubt: float, rounds: int) -> float:
    """Return the expected gain of a trial, in steps of a round at speed 1.

    The expectation of max(speed - known, 0) is that of a call option (Black and Scholes).
    """
    mean = math.exp(0.5 * doubt * doubt)
    below = -math.log(known) / doubt
    cdf = _normal().cdf
    better = mean * cdf(below + doubt) - known * cdf(below)
    return (rounds - 1) * better - (known * (1.0 + MOVE_ROUNDS) - mean)


@cache
def _normal() -> "NormalDist":
    from statistics import NormalDist  # noqa: PLC0415  # slow to import; few runs have doubts

    return NormalDist()
