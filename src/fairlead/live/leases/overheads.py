"""Overheads of leases: time before the first and after the last step."""

import math
from collections import deque

from fairlead.live.leases.open_leases import OpenLease

_RECENT_LEASES = 1000
"""leases whose overheads are averaged"""


class LeaseOverheads:
    """Averages over recently ended leases, from the reports of their members."""

    def __init__(self) -> None:
        self._starts: deque[float] = deque(maxlen=_RECENT_LEASES)
        self._ends: deque[float] = deque(maxlen=_RECENT_LEASES)

    def record(self, lease: OpenLease, at: float) -> None:
        """Count a lease that ends now, if the times of its launch and steps are known."""
        if lease.first_step_at is None or lease.last_step_at is None:
            return
        if not math.isnan(lease.launched_at):
            self._starts.append(max(lease.first_step_at - lease.launched_at, 0.0))
        self._ends.append(max(at - lease.last_step_at, 0.0))

    @property
    def start_s(self) -> float | None:
        """Mean time from the launch of a lease to its first step; None before any is known."""
        return sum(self._starts) / len(self._starts) if self._starts else None

    @property
    def end_s(self) -> float | None:
        """Mean time from a lease's last step to its end, when its devices become free."""
        return sum(self._ends) / len(self._ends) if self._ends else None
