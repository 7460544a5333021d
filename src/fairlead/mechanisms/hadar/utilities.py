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


Utility = Callable[[UtilityTerms, FloatArray], FloatArray]
"""(terms, seconds from arrival to completion) → worth; never grows with the completion time"""


def throughput(terms: UtilityTerms, jct_s: FloatArray) -> FloatArray:
    """Return the effective throughput, steps per second from arrival to completion (§III-A)."""
    return terms.total_steps / jct_s


def normalised(terms: UtilityTerms, jct_s: FloatArray) -> FloatArray:
    """Return the time a job would take alone on the fastest devices over the time it takes.

    Unlike the effective throughput this does not depend on how large a step is.
    """
    return terms.ideal_s / jct_s


def completion(terms: UtilityTerms, jct_s: FloatArray) -> FloatArray:
    """Return the inverse of the completion time, the same for large jobs as for small ones."""
    del terms
    return 1.0 / jct_s


def makespan(terms: UtilityTerms, jct_s: FloatArray) -> FloatArray:
    """Return a worth that prefers jobs with long to go, each where it is relatively fast.

    Per device it is the ideal time left × the ideal time left over the time it will take.
    """
    return terms.gang * terms.ideal_left_s**2 / (jct_s - terms.elapsed_s)


UTILITIES: Mapping[str, Utility] = {
    "throughput": throughput,
    "normalised": normalised,
    "completion": completion,
    "makespan": makespan,
}


def utility_named(name: str) -> Utility:
    """Return the utility of this name."""
    if name not in UTILITIES:
        raise UsageError(f"utility: unknown name {name!r}: expected one of {', '.join(UTILITIES)}")
    return UTILITIES[name]
