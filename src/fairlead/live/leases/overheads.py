"""Overheads of leases: time before the first and after the last step."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev

_RECENT_LEASES = 1000
"""leases whose overheads are averaged"""
BUCKETS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""upper bounds of the buckets in which overheads are counted"""
_MAX_RESTART_S = 600.0
"""seconds above which a restart counts no more: a job could wait to earn longer turns"""


@dataclass(slots=True)
class Overhead:
    """One kind of overhead: its recent values, and counts of all since the server's start."""

    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_LEASES))
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """leases by bucket"""
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a lease."""
        self.recent_s.append(seconds)
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def mean_s(self) -> float | None:
        """Mean of the recent values; None before any is known."""
        return sum(self.recent_s) / len(self.recent_s) if self.recent_s else None


class LeaseOverheads:
    """Overheads of ended leases, from the reports of their members."""

    def __init__(self) -> None:
        self.start = Overhead()
        """from the launch of a lease to its first step"""
        self.end = Overhead()
        """from a lease's last step to its end, when its devices become free"""

    def record(self, lease: OpenLease, at: float) -> None:
        """Count a lease that ends now, if the times of its launch and steps are known."""
        if lease.first_step_at is None or lease.last_step_at is None:
            return
        if not math.isnan(lease.launched_at):
            self.start.add(max(lease.first_step_at - lease.launched_at, 0.0))
        self.end.add(max(at - lease.last_step_at, 0.0))

    @property
    def start_s(self) -> float | None:
        """Mean time from the launch of a lease to its first step; None before any is known."""
        return self.start.mean_s

    @property
    def end_s(self) -> float | None:
        """Mean time from a lease's last step to its end, when its devices become free."""
        return self.end.mean_s


class RestartTimes:
    """Reports the restart of each lease that continues a job, once, after its first step.

    First starts do not count: they may load data and compile for longer than later ones. Nor do
    copies, and leases of earlier servers, whose launch is not known.
    """

    def __init__(self, leases: Mapping[int, OpenLease]) -> None:
        self._leases = leases
        self._reported: set[int] = set()

    def events(self, at: float) -> list[ev.Event]:
        """Return the restarts that were measured since the last call."""
        self._reported &= self._leases.keys()
        measured: list[ev.Event] = []
        for lease in self._leases.values():
            if lease.number in self._reported or not _is_measured_restart(lease):
                continue
            self._reported.add(lease.number)
            assert lease.first_step_at is not None
            seconds = min(max(lease.first_step_at - lease.launched_at, 0.0), _MAX_RESTART_S)
            measured.append(ev.RestartMeasured(at, lease.job, seconds))
        return measured


def _is_measured_restart(lease: OpenLease) -> bool:
    """Return whether a lease continues a job from a checkpoint and has begun its first step."""
    continues = lease.claims.limits.saved_steps > 0 and not lease.copy and not lease.leaving
    return continues and lease.first_step_at is not None and not math.isnan(lease.launched_at)
