"""Utility functions U_j of Hadar: the worth of finishing a job (§III-A)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class UtilityTerms:
    """Inputs of a utility besides the completion time; columns of shape jobs × 1."""

    total_steps: FloatArray
    ideal_s: FloatArray
    """all its steps at its greatest speed"""
    ideal_left_s: FloatArray
    """the steps left at its greatest speed"""
    elapsed_s: FloatArray
    gang: FloatArray

    @classmethod
    def of(cls, snap: Snapshot, fastest: FloatArray) -> "UtilityTerms":
        """Return the terms of a snapshot's jobs, given the greatest speed of each."""
        length = snap.length
        columns = (
            length,
            length / fastest,
            snap.steps_left / fastest,
            snap.starts_at - snap.arrival_at,
            snap.gang.astype(np.float64),
        )
        return cls(*(column[:, None] for column in columns))

    def only(self, rows: slice) -> "UtilityTerms":
        """Return the terms of some of the jobs."""
        return UtilityTerms(
            self.total_steps[rows],
            self.ideal_s[rows],
            self.ideal_left_s[rows],
            self.elapsed_s[rows],
            self.gang[rows],
        )


@dataclass(frozen=True, slots=True)
class Utility:
    """The worth of finishing a job: a numerator over the seconds that it takes.

    It never grows with the completion time.
    """

    numerator: Callable[[UtilityTerms], FloatArray]
    from_now: bool = False
    """whether the seconds count from now on; else from arrival"""

    def __call__(self, terms: UtilityTerms, jct_s: FloatArray) -> FloatArray:
        """Return the worth, given the seconds from arrival to completion."""
        time = jct_s - terms.elapsed_s if self.from_now else jct_s
        worth: FloatArray = self.numerator(terms) / time
        return worth


def _throughput(terms: UtilityTerms) -> FloatArray:
    """Return the numerator of effective throughput, steps per second from arrival on (§III-A)."""
    return terms.total_steps


def _normalised(terms: UtilityTerms) -> FloatArray:
    """Return the time that jobs would take alone on the fastest devices.

    Unlike effective throughput, its ratio to the time does not depend on the size of a step.
    """
    return terms.ideal_s


def _completion(terms: UtilityTerms) -> FloatArray:
    """Return 1 for all jobs: large jobs count like small ones."""
    return np.ones_like(terms.total_steps)


def _makespan(terms: UtilityTerms) -> FloatArray:
    """Return what makes jobs with long to go come first, each where it is relatively fast.

    Per device it is the square of the ideal time left.
    """
    return terms.gang * terms.ideal_left_s**2


UTILITIES: Mapping[str, Utility] = {
    "throughput": Utility(_throughput),
    "normalised": Utility(_normalised),
    "completion": Utility(_completion),
    "makespan": Utility(_makespan, from_now=True),
}


def utility_named(name: str) -> Utility:
    """Return the utility of this name."""
    if name not in UTILITIES:
        raise UsageError(f"utility: unknown name {name!r}: expected one of {', '.join(UTILITIES)}")
    return UTILITIES[name]
