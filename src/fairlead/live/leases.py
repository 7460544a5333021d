"""Open leases as the job processes see them: until when, and how a gang leaves together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_AWAY_S = 60.0
"""how long a lease without an end goes on when the server is away"""
_SOONEST_S, _OFTEN_S = 0.05, 5.0
_RENEWALS_PER_S = 200.0
"""of all members together, above which they are asked to renew less often"""
_LEAVING_PER_S, _LEAVING_S = 500.0, 1.0


@dataclass(slots=True)
class OpenLease:
    """What members of a lease have told, and what they are to be told."""

    number: int
    job: str
    ranks: int
    until: float
    leaving: bool = False
    steps: float = 0.0
    steps_per_s: float = 0.0
    heard_at: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    _final: dict[int, int] = field(default_factory=dict)
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
        metrics = told.get("metrics")
        if isinstance(metrics, Mapping):
            self.metrics.update((str(name), _finite(value)) for name, value in metrics.items())
        if not self.leaving:
            valid_s = max(min(self.until - at, _AWAY_S), 0.0)
            again_s = load.renew_again_s(valid_s)
            return {
                "valid_s": valid_s, "again_s": again_s, "leave": False, "leave_after": None
            }  # fmt: skip
        if told.get("leaving"):
            self._final[rank] = max(started, self._final.get(rank, 0))
        after = max(self._final.values()) if len(self._final) == self.ranks else None
        again_s = load.leave_again_s() if told.get("leaving") else 0.0
        return {"valid_s": _AWAY_S, "again_s": again_s, "leave": True, "leave_after": after}


@dataclass(slots=True)
class Load:
    """How much members ask of the server, and so how often each should."""

    members: int = 0
    """of open leases"""
    leaving: int = 0
    """leases whose members were told to leave"""

    def renew_again_s(self, valid_s: float) -> float:
        """Return when to renew a lease that is good for so long: several times before its end."""
        often_s = min(max(valid_s / 8, _SOONEST_S), _OFTEN_S)
        return min(max(often_s, self.members / _RENEWALS_PER_S), max(valid_s / 2, _SOONEST_S))

    def leave_again_s(self) -> float:
        """Return when to ask again whether all of a gang have said that they leave."""
        return min(max(self.leaving / _LEAVING_PER_S, _SOONEST_S), _LEAVING_S)


def _finite(value: float) -> float | None:
    """Return a figure as JSON can say it: a loss may well be infinite."""
    return float(value) if math.isfinite(value) else None
