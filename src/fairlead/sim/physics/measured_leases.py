"""Leases of a real run: their starts, ends and speeds, for simulations of that run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

StartKind = Literal["first", "resume", "move", "hand-over"]
"""kind of a lease's start, by the time that it takes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLease:
    """One lease of a real run; None where the run did not measure a value."""

    accelerator: str
    kind: StartKind
    start_s: float | None
    """from the lease's start to its first step"""
    leave_s: float | None
    """from its last step to free devices"""
    steps_per_s: float | None


class LeaseReplay:
    """Gives the leases of a simulated job the values of its real leases, in order.

    The n-th start of a kind takes the time of the job's n-th measured start of that kind, and the
    n-th lease on an accelerator has the speed of the n-th measured lease there; later ones repeat
    the last. A kind or an accelerator without a measurement of the job has None.
    """

    def __init__(self, leases: Sequence[MeasuredLease]) -> None:
        self._start_s: dict[str, list[float]] = defaultdict(list)
        self._steps_per_s: dict[str, list[float]] = defaultdict(list)
        self._leave_s = [lease.leave_s for lease in leases if lease.leave_s is not None]
        for lease in leases:
            if lease.start_s is not None:
                self._start_s[lease.kind].append(lease.start_s)
            if lease.steps_per_s is not None:
                self._steps_per_s[lease.accelerator].append(lease.steps_per_s)

    def next_start_s(self, kind: StartKind) -> float | None:
        """Return the seconds of the job's next start of a kind."""
        return _next(self._start_s.get(kind))

    def next_steps_per_s(self, accelerator: str) -> float | None:
        """Return the speed of the job's next lease on an accelerator."""
        return _next(self._steps_per_s.get(accelerator))

    def next_leave_s(self) -> float | None:
        """Return the seconds that the end of the job's next lease takes."""
        return _next(self._leave_s)


def _next(values: "list[float] | None") -> float | None:
    if not values:
        return None
    return values.pop(0) if len(values) > 1 else values[0]
