"""Warnings about work that a lease has lost, because no checkpoint holds it."""

from collections.abc import MutableMapping

import structlog

from fairlead.live.accounting import JobCounters
from fairlead.live.event_stream import EventStream
from fairlead.live.leases.open_leases import OpenLease

log = structlog.get_logger("fairlead.live")

_MIN_LOST_S = 1.0
"""seconds of work whose loss is worth a warning"""


class LostWorkWarnings:
    """Tells the log, the event stream and the job's message how much work a lease has lost."""

    def __init__(
        self, counters: JobCounters, messages: MutableMapping[str, str], stream: EventStream
    ) -> None:
        self._counters, self._messages, self._stream = counters, messages, stream
        self._before: dict[int, float] = {}
        """lease that is about to end → seconds that its job had lost before"""

    def begin(self, lease: OpenLease) -> None:
        """Note the work lost so far, before the end of a lease is handled."""
        self._before[lease.number] = self._counters.of(lease.job).lost_s

    def warn(self, lease: OpenLease) -> None:
        """Warn if the end of a lease, which has been handled, has lost work."""
        lost_s = self._counters.of(lease.job).lost_s - self._before.pop(lease.number, 0.0)
        if lost_s < _MIN_LOST_S:
            return
        details = {"job": lease.job, "lease": lease.number, "lost_s": round(lost_s, 1)}
        log.warning("job.work_lost", **details)
        self._stream.publish("job.work_lost", **details)
        if not self._messages.get(lease.job):
            self._messages[lease.job] = f"{lost_s:.0f} s of work lost: no checkpoint holds them"
