"""Speeds that a lease's job reports, and the company in which it measured them."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from fairlead.live.leases.renewal import Renewal

_KEPT = 5
"""last reported speeds that are kept"""
_MIN_REPORTS = 3
"""reports, each after further steps, before a speed counts as measured"""
_WINDOW_S = 1.0
"""seconds of steps that a window of the library lasts at least"""
_WINDOWS_TO_CHANGE = 2
"""windows of the library until one has begun after a change of company: the open one ends first"""
_WARM_UP_WINDOWS = 1
"""first windows of a lease that do not count: caches are cold, and compilers are at work"""
_RISE = 1.1
"""factor by which a speed exceeds all kept ones if those were of the warm-up"""
_MAX_WARM_UP_REPORTS = 20
"""reports among which such a rise ends the warm-up; later ones are changes in mid-training"""


@dataclass(frozen=True, slots=True)
class Company:
    """The leases that share the devices of a lease."""

    partners: tuple[int, ...] = ()
    steady: bool = True
    """whether all of them make steps and none is leaving"""


@dataclass(slots=True)
class ReportedSpeeds:
    """The last speeds of one lease, all measured in its present company after its warm-up."""

    company: Company | None = None
    """None as long as no jobs share devices"""
    series: int = 0
    """number of the present speeds' series: another company or the end of a warm-up begins one"""
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """each after further steps"""
    _reports: int = 0
    """speeds that were ever kept"""
    _at_steps: float = 0.0
    """steps when the last of them was reported"""
    _last: float = 0.0
    """speed that was reported last"""
    _windows_left: int = 0
    """windows that must end before a speed counts"""
    _windows: int = 0
    """windows that have ended under this lease"""
    _window_end_s: float = 0.0
    """end of the last of them, in seconds after the first step began"""

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
        warm = self._is_warm(renewal)
        if company != self.company:
            self.company = company
            self._begin_series()
            begins_alone = renewal.first_step_s is None and not (company and company.partners)
            self._windows_left = 0 if begins_alone else _WINDOWS_TO_CHANGE
        elif self._windows_left and speed != self._last and self._windows:
            # The library reports the same speed until its next window ends.
            self._windows_left -= 1
        self._last = speed
        if self.current and warm and speed > 0 and renewal.steps > self._at_steps:
            self._at_steps = renewal.steps
            self._keep(speed)

    def _is_warm(self, renewal: Renewal) -> bool:
        """Count the windows that have ended; return whether the last one was after the warm-up.

        The library's windows end no later than those counted here. A reporter that tells no
        times of steps has no windows.
        """
        first_s, last_s = renewal.first_step_s, renewal.last_step_s
        if first_s is None or last_s is None:
            return True
        if first_s - last_s >= self._window_end_s + _WINDOW_S:
            self._window_end_s = first_s - last_s
            self._windows += 1
        return self._windows > _WARM_UP_WINDOWS

    def _keep(self, speed: float) -> None:
        """Keep a speed; drop those before if it shows that they were of the warm-up."""
        is_early = self._reports < _MAX_WARM_UP_REPORTS
        if is_early and self._recent and speed > _RISE * max(self._recent):
            self._begin_series()
        self._reports += 1
        self._recent.append(speed)

    def _begin_series(self) -> None:
        self._recent.clear()
        self.series += 1
