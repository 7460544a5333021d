"""Speeds of two jobs on one device, alone and beside each other."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

_SETTLED = 4
"""readings of a speed, after a change of company, that are of the time before"""


class Reading(NamedTuple):
    """Both jobs at one time."""

    at_s: float
    steps_per_s: tuple[float, float]
    together: bool
    """whether they share the device"""
    mps: bool
    """whether a process of MPS serves the device"""


class Outcome(NamedTuple):
    """Speeds of both jobs, and whether they share the device at the end."""

    alone: tuple[float, float]
    beside: tuple[float, float]
    kept: bool

    @property
    def gain(self) -> float:
        """Return the sum of the speeds beside each other, relative to those alone."""
        return sum(here / best for here, best in zip(self.beside, self.alone, strict=True))


def outcome(readings: Sequence[Reading]) -> Outcome | None:
    """Return what the readings tell; None if one of the speeds is missing.

    Speeds are medians. Readings soon after a change of company are left out.
    """
    alone: tuple[list[float], list[float]] = [], []
    beside: tuple[list[float], list[float]] = [], []
    since = 0
    for i, reading in enumerate(readings):
        if i and reading.together != readings[i - 1].together:
            since = i
        if i - since >= _SETTLED:
            for speeds, speed in zip(
                beside if reading.together else alone, reading.steps_per_s, strict=True
            ):
                if speed > 0.0:
                    speeds.append(speed)
    if not all((*alone, *beside)):
        return None
    return Outcome(
        (median(alone[0]), median(alone[1])),
        (median(beside[0]), median(beside[1])),
        readings[-1].together,
    )
