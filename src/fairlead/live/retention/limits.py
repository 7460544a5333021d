"""Limits of retention: the age and the size up to which the server keeps things."""

from dataclasses import dataclass, fields

_MIN_PERIOD_S, _MAX_PERIOD_S = 1.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Ages count from the end of a job; None keeps things for ever, or as long as their job."""

    jobs_s: float | None = None
    logs_s: float | None = None
    checkpoints_s: float | None = None
    audit_s: float | None = None
    logs_bytes: int | None = None
    """size of the logs of all ended jobs"""
    checkpoints_bytes: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever removed."""
        return all(getattr(self, item.name) is None for item in fields(self))

    @property
    def period_s(self) -> float:
        """Seconds between two removals: a tenth of the shortest age, at most ten minutes."""
        ages = (self.jobs_s, self.logs_s, self.checkpoints_s, self.audit_s)
        shortest = min((age for age in ages if age is not None), default=_MAX_PERIOD_S)
        return min(max(shortest / 10, _MIN_PERIOD_S), _MAX_PERIOD_S)
