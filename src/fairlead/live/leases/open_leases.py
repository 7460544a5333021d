"""Open leases as their members see them: end, renewal interval and joint exit of a gang."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.live.leases.claims import Claims
from fairlead.live.leases.renewal import Renewal, RenewalAnswer
from fairlead.live.leases.reported_speeds import Company, ReportedSpeeds
from fairlead.model.errors import InputError

_MAX_VALID_S = 60.0
"""seconds that a member may run without contact to the server"""
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.05, 5.0
_RENEWALS_PER_S = 200.0
"""renewals of all members together above which they are asked to renew less often"""
_LEAVING_PER_S, _MAX_LEAVE_POLL_S = 500.0, 1.0
_MAX_METRICS = 100
"""metrics kept per lease; further names are dropped"""


@dataclass(slots=True)
class OpenLease:
    """The reports of a lease's members, and the answers to them."""

    number: int
    job: str
    ranks: int
    until: float
    leaving: bool = False
    waits_for_growth: bool = False
    """it leaves only once the new members of its gang are ready"""
    launched_at: float = math.nan
    """time of its launch; unknown if an earlier server launched it"""
    first_step_at: float | None = None
    last_step_at: float | None = None
    steps: float = 0.0
    steps_per_s: float = 0.0
    last_heartbeat_at: float | None = None
    copy: int = 0
    """number of the copy that holds it; 0: the job itself. A copy reports its own steps"""
    max_steps: float = math.inf
    """steps after which a copy leaves"""
    claims: Claims = field(default_factory=Claims)
    metrics: dict[str, float | None] = field(default_factory=dict)
    """newest value of each metric"""
    has_new_metrics: bool = False
    """whether metrics were reported since ``sampled_at``"""
    sampled_at: float = -math.inf
    """time at which its metrics last entered the job's history"""
    speeds: ReportedSpeeds = field(default_factory=ReportedSpeeds)
    _final_steps: dict[int, int] = field(default_factory=dict)
    """rank → steps that it has started, once it starts no further step"""

    def renew(
        self, at: float, renewal: Renewal, load: "RenewalLoad", company: Company | None = None
    ) -> RenewalAnswer:
        """Record a member's report and return the answer to it.

        ``company``: the leases on the same devices; None as long as no jobs share devices.
        """
        rank, leaving = renewal.rank, renewal.leaving
        if rank >= self.ranks:
            fix = f"expected less than {self.ranks}, the members of the gang"
            raise InputError(f"no member {rank}", fix=fix, field="rank")
        self.last_heartbeat_at = at
        self.record_steps(at, renewal.steps)
        if rank == 0:
            self.steps_per_s = renewal.steps_per_s
            self.speeds.record(renewal, company)
            self.claims.check_speed(renewal.steps_per_s)
            self._record_step_times(at, renewal.first_step_s, renewal.last_step_s)
        if renewal.metrics:
            self._record_metrics(renewal.metrics)
        if not self.leaving or self.waits_for_growth:
            valid_s = max(min(self.until - at, _MAX_VALID_S), 0.0)
            again_s = load.renewal_interval_s(valid_s)
            return {
                "valid_s": valid_s, "again_s": again_s, "leave": False, "leave_after": None
            }  # fmt: skip
        if leaving:
            self._final_steps[rank] = max(renewal.started, self._final_steps.get(rank, 0))
        after = max(self._final_steps.values()) if len(self._final_steps) == self.ranks else None
        again_s = load.leave_poll_s() if leaving else 0.0
        return {"valid_s": _MAX_VALID_S, "again_s": again_s, "leave": True, "leave_after": after}

    def record_steps(self, at: float, claimed: float) -> None:
        """Record the steps that its job claims, at most the possible ones; never fewer."""
        self.steps = max(self.steps, self.claims.accept_steps(at, claimed))

    def has_progressed(self, before: float) -> bool:
        """Return whether its job has made steps under it, beyond ``before``."""
        return self.first_step_at is not None or self.steps > before

    def _record_metrics(self, metrics: Mapping[str, float]) -> None:
        self.has_new_metrics = True
        for name, value in metrics.items():
            if name in self.metrics or len(self.metrics) < _MAX_METRICS:
                self.metrics[name] = _finite(value)

    def _record_step_times(self, at: float, first_s: float | None, last_s: float | None) -> None:
        if first_s is not None and self.first_step_at is None:
            self.first_step_at = at - first_s
        if last_s is not None:
            self.last_step_at = at - last_s


@dataclass(slots=True)
class RenewalLoad:
    """Load of renewals on the server, which determines their interval."""

    members: int = 0
    """members of all open leases"""
    leaving: int = 0
    """preempted leases that have not ended"""

    def renewal_interval_s(self, valid_s: float) -> float:
        """Return the seconds until the next renewal: several renewals fit into ``valid_s``."""
        often_s = min(max(valid_s / 8, _MIN_INTERVAL_S), _MAX_INTERVAL_S)
        spread_s = max(often_s, self.members / _RENEWALS_PER_S)
        return min(spread_s, max(valid_s / 2, _MIN_INTERVAL_S))

    def leave_poll_s(self) -> float:
        """Return the seconds until a leaving member should ask for the gang's last step again."""
        return min(max(self.leaving / _LEAVING_PER_S, _MIN_INTERVAL_S), _MAX_LEAVE_POLL_S)


def _finite(value: float) -> float | None:
    """Return a metric as JSON can hold it; None if it is not finite."""
    return float(value) if math.isfinite(value) else None
