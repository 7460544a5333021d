"""Outcomes of leases, as engines, event log, REST API and ``exit.json`` name them.

Keepers load this module, so it must not load numpy.
"""

from typing import Final, Literal

LoggedOutcome = Literal["finished", "left", "failed", "lost"]
"""outcome in the scheduler's event log"""
LeaseOutcome = LoggedOutcome | Literal["refused"]
"""outcome that an engine reports; ``refused``: a later lease of the job fenced this one"""

FAILED_OUTCOMES: Final[tuple[LeaseOutcome, ...]] = ("failed", "lost", "refused")
"""outcomes after which the other parts of a gang are stopped"""
WORST_FIRST: Final[tuple[LeaseOutcome, ...]] = ("refused", "lost", "failed", "left", "finished")
"""order in which one part's outcome becomes that of the whole lease"""


def logged_outcome(outcome: LeaseOutcome) -> LoggedOutcome:
    """Return an outcome as the event log records it: a refused lease is lost."""
    return "lost" if outcome == "refused" else outcome
