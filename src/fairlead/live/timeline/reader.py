"""Reader of the timeline: the hours of a window of time, from memory or the store."""

import asyncio

from fairlead.live.timeline.hours import KIND, Hour, hour_of, key
from fairlead.live.timeline.recorder import TimelineRecorder
from fairlead.store import Store

_MAX_CACHED = 24 * 9
"""hours kept in memory: a week and a little"""


class TimelineReader:
    """Returns hours; past hours never change once stored, so it keeps the last ones it read."""

    def __init__(self, store: Store, recorder: TimelineRecorder) -> None:
        self._store, self._recorder = store, recorder
        self._cached: dict[int, Hour] = {}
        self._lock = asyncio.Lock()
        """one read at a time: each takes a thread and a good part of a core"""

    async def hours(self, begin: float, end: float) -> list[Hour]:
        """Return the hours from ``begin`` to ``end``, in their order."""
        recent = await asyncio.to_thread(self._recorder.recent().hours)
        first, last = hour_of(begin), min(hour_of(end), max(recent))
        async with self._lock:
            missing = [
                hour
                for hour in range(first, last + 1)
                if hour not in recent and hour not in self._cached
            ]
            if missing:
                await asyncio.to_thread(self._read, missing[0], missing[-1], frozenset(recent))
            hours = [
                recent.get(hour) or self._cached.get(hour) or Hour.empty()
                for hour in range(first, last + 1)
            ]
            for hour in sorted(self._cached)[:-_MAX_CACHED]:
                del self._cached[hour]
        return hours

    def _read(self, first: int, last: int, recent: frozenset[int]) -> None:
        texts = self._store.documents_between(KIND, key(first), key(last))
        for hour in range(first, last + 1):
            if hour not in recent and hour not in self._cached:
                self._cached[hour] = Hour.from_text(texts.get(key(hour)))
