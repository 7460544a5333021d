"""Warnings about work that a lease has lost, because no checkpoint holds it."""

from collections.abc import MutableMapping

import structlog

from fairlead.live.accounting import JobCounters
from fairlead.live.event_stream import EventStream

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
        """lease whose end or save is about to be handled → seconds that its job had lost before"""

    def begin(self, job: str, lease: int) -> None:
        """Note the work lost so far, before the end of a lease or its save is handled."""
        self._before[lease] = self._counters.of(job).lost_s

    def warn(self, job: str, lease: int) -> None:
        """Warn if the end of a lease, or its save, has lost work; it has been handled."""
        before = self._before.pop(lease, None)
        lost_s = 0.0 if before is None else self._counters.of(job).lost_s - before
        if lost_s < _MIN_LOST_S:
            return
        details = {"job": job, "lease": lease, "lost_s": round(lost_s, 1)}
        log.warning("job.work_lost", **details)
        self._stream.publish("job.work_lost", **details)
        if not self._messages.get(job):
            self._messages[job] = f"{lost_s:.0f} s of work lost: no checkpoint holds them"
