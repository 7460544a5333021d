"""Open leases as the job processes see them: until when, and how a gang leaves together."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

_AWAY_S = 60.0
"""how long a lease without an end goes on when the server is away"""
_SOONEST_S, _OFTEN_S = 0.05, 5.0
_RENEWALS_PER_S = 200.0
"""of all members together, above which they are asked to renew less often"""
_LEAVING_PER_S, _LEAVING_S = 500.0, 1.0
_RECENT_LEASES = 1000
"""leases whose costs are averaged"""
_MOST_METRICS = 100
"""names of a lease that are kept; what further ones tell is dropped"""


@dataclass(slots=True)
class OpenLease:
    """What members of a lease have told, and what they are to be told."""

    number: int
    job: str
    ranks: int
    until: float
    leaving: bool = False
    launched_at: float = math.nan
    """when it was to start; not known of one that an earlier server started"""
    first_step_at: float | None = None
    last_step_at: float | None = None
    steps: float = 0.0
    steps_per_s: float = 0.0
    heard_at: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    """the newest value of each name, of so many as came first"""
    _final_steps: dict[int, int] = field(default_factory=dict)
    """rank → steps that it has started, once it starts no more"""

    def renew(self, at: float, told: Mapping[str, object], load: "Load") -> dict[str, object]:
        """Take in what a member tells and return its answer.

        ``valid_s`` is how long it may go on without hearing from the server, ``again_s`` when it
        should ask again; ``leave_after`` is known once all members have said how many steps they
        have started.
        """
        rank, started = int(str(told["rank"])), int(str(told["started"]))
        steps = float(str(told["steps"]))
        self.heard_at = at
        self.steps = max(self.steps, steps)
        if rank == 0:
            self.steps_per_s = float(str(told.get("steps_per_s", 0.0)))
            self._note_steps(at, told.get("first_step_s"), told.get("last_step_s"))
        metrics = told.get("metrics")
        if isinstance(metrics, Mapping):
            self._note_metrics(metrics)
        if not self.leaving:
            valid_s = max(min(self.until - at, _AWAY_S), 0.0)
            again_s = load.renewal_interval_s(valid_s)
            return {
                "valid_s": valid_s, "again_s": again_s, "leave": False, "leave_after": None
            }  # fmt: skip
        if told.get("leaving"):
            self._final_steps[rank] = max(started, self._final_steps.get(rank, 0))
        after = max(self._final_steps.values()) if len(self._final_steps) == self.ranks else None
        again_s = load.leave_poll_s() if told.get("leaving") else 0.0
        return {"valid_s": _AWAY_S, "again_s": again_s, "leave": True, "leave_after": after}

    def has_progressed(self, before: float) -> bool:
        """Tell whether its job has made steps under it, beyond those it had ``before``."""
        return self.first_step_at is not None or self.steps > before

    def _note_metrics(self, told: Mapping[str, float]) -> None:
        for name, value in told.items():
            if name in self.metrics or len(self.metrics) < _MOST_METRICS:
                self.metrics[name] = _finite(value)

    def _note_steps(self, at: float, first_s: object, last_s: object) -> None:
        if first_s is not None and self.first_step_at is None:
            self.first_step_at = at - float(str(first_s))
        if last_s is not None:
            self.last_step_at = at - float(str(last_s))


class Costs:
    """What leases cost beside their steps, as their members have told of late."""

    def __init__(self) -> None:
        self._starts: deque[float] = deque(maxlen=_RECENT_LEASES)
        self._ends: deque[float] = deque(maxlen=_RECENT_LEASES)

    def note(self, lease: OpenLease, at: float) -> None:
        """Count a lease that ends now, if it is known when it began and made its steps."""
        if lease.first_step_at is None or lease.last_step_at is None:
            return
        if not math.isnan(lease.launched_at):
            self._starts.append(max(lease.first_step_at - lease.launched_at, 0.0))
        self._ends.append(max(at - lease.last_step_at, 0.0))

    @property
    def start_s(self) -> float | None:
        """From the start of a lease to its first step, on average; None before any is known."""
        return sum(self._starts) / len(self._starts) if self._starts else None

    @property
    def end_s(self) -> float | None:
        """From a lease's last step to its end, when others get its devices."""
        return sum(self._ends) / len(self._ends) if self._ends else None


@dataclass(slots=True)
class Load:
    """How much members ask of the server, and so how often each should."""

    members: int = 0
    """of open leases"""
    leaving: int = 0
    """leases whose members were told to leave"""

    def renewal_interval_s(self, valid_s: float) -> float:
        """Return when to renew a lease that is good for so long: several times before its end."""
        often_s = min(max(valid_s / 8, _SOONEST_S), _OFTEN_S)
        return min(max(often_s, self.members / _RENEWALS_PER_S), max(valid_s / 2, _SOONEST_S))

    def leave_poll_s(self) -> float:
        """Return when to ask again whether all of a gang have said that they leave."""
        return min(max(self.leaving / _LEAVING_PER_S, _SOONEST_S), _LEAVING_S)


def _finite(value: float) -> float | None:
    """Return a figure as JSON can say it: a loss may well be infinite."""
    return float(value) if math.isfinite(value) else None
