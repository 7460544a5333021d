"""Speeds that a lease's job reports, and the company in which it measured them."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from fairlead.live.leases.renewal import Renewal

_KEPT = 5
"""last reported speeds that are kept"""
_MIN_REPORTS = 3
"""reports, each after further steps, before a speed counts as measured"""
_FIRST_WINDOW_S = 1.0
"""seconds of steps that the library's first window lasts at least"""
_WINDOWS_TO_CHANGE = 2
"""windows of the library until one has begun after a change of company: the open one ends first"""


@dataclass(frozen=True, slots=True)
class Company:
    """The leases that share the devices of a lease."""

    partners: tuple[int, ...] = ()
    steady: bool = True
    """whether all of them make steps and none is leaving"""


@dataclass(slots=True)
class ReportedSpeeds:
    """The last speeds of one lease, all measured in its present company."""

    company: Company | None = None
    """None as long as no jobs share devices"""
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """each after further steps"""
    _at_steps: float = 0.0
    """steps when the last of them was reported"""
    _last: float = 0.0
    """speed that was reported last"""
    _windows_left: int = 0
    """windows that must end before a speed counts"""

    @property
    def current(self) -> bool:
        """Whether the last reported speed was measured in the present company."""
        return not self._windows_left and (self.company is None or self.company.steady)

    @property
    def measured(self) -> float | None:
        """Median of the last speeds; None until the job has made some steps in this company."""
        return median(self._recent) if len(self._recent) >= _MIN_REPORTS else None

    def record(self, renewal: Renewal, company: Company | None) -> None:
        """Keep the speed of a renewal if it was measured in the present company."""
        speed = renewal.steps_per_s
        if company != self.company:
            self.company = company
            self._recent.clear()
            begins_alone = renewal.first_step_s is None and not (company and company.partners)
            self._windows_left = 0 if begins_alone else _WINDOWS_TO_CHANGE
        elif self._windows_left and speed != self._last and _has_measured(renewal):
            # The library reports the same speed until its next window ends.
            self._windows_left -= 1
        self._last = speed
        if self.current and speed > 0 and renewal.steps > self._at_steps:
            self._at_steps = renewal.steps
            self._recent.append(speed)


def _has_measured(renewal: Renewal) -> bool:
    """Return whether the first window has ended; until then its speed changes all the time."""
    first_s, last_s = renewal.first_step_s, renewal.last_step_s
    return first_s is not None and last_s is not None and first_s - last_s >= _FIRST_WINDOW_S
