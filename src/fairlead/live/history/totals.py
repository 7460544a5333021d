"""Counts of all jobs together, those that are no longer kept included."""

from bisect import bisect_left
from dataclasses import dataclass, field

WAIT_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0)
"""upper bounds of the buckets in which queue waits are counted"""


@dataclass(slots=True)
class Totals:
    """Counts of all jobs together."""

    ended: dict[str, int] = field(default_factory=dict)
    """final state → jobs"""
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))
    """jobs by the time from submission to the first start, by bucket"""
    waits_s: float = 0.0
    """sum of these times"""
    removed: dict[str, int] = field(default_factory=dict)
    """kind of thing → number removed because of its age or size"""

    def add_wait(self, wait_s: float) -> None:
        """Count a job that starts for the first time."""
        self.waits[bisect_left(WAIT_BUCKETS_S, wait_s)] += 1
        self.waits_s += wait_s
