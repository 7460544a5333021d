"""Open leases as the job processes see them: until when, and how a gang leaves together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_AWAY_S = 60.0
"""how long a lease without an end goes on when the server is away"""


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
    metrics: dict[str, float] = field(default_factory=dict)
    _final: dict[int, int] = field(default_factory=dict)
    """rank → steps that it has started, once it starts no more"""

    def renew(self, at: float, told: Mapping[str, object]) -> dict[str, object]:
        """Take in what a member tells and return its answer.

        ``valid_s`` is how long it may go on without hearing from the server; ``leave_after`` is
        known once all members have said how many steps they have started.
        """
        rank, started = int(str(told["rank"])), int(str(told["started"]))
        steps = float(str(told["steps"]))
        self.heard_at = at
        self.steps = max(self.steps, steps)
        if rank == 0:
            self.steps_per_s = float(str(told.get("steps_per_s", 0.0)))
        metrics = told.get("metrics")
        if isinstance(metrics, Mapping):
            self.metrics.update({str(name): float(value) for name, value in metrics.items()})
        valid_s = min(self.until - at, _AWAY_S)
        if not self.leaving:
            return {"valid_s": max(valid_s, 0.0), "leave": False, "leave_after": None}
        if told.get("leaving"):
            self._final[rank] = max(started, self._final.get(rank, 0))
        after = max(self._final.values()) if len(self._final) == self.ranks else None
        return {"valid_s": _AWAY_S, "leave": True, "leave_after": after}
