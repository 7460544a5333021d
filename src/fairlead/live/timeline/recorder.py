"""Recorder of the timeline: collects leases, outages and shares, and stores them by the hour."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from fairlead.core.queries import Queries
from fairlead.live.accounting import JobCounters
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers
from fairlead.live.timeline.hours import HOUR_S, KEPT_HOURS, KIND, NEWEST, Hour, hour_of, key
from fairlead.live.timeline.intervals import OPEN, HeldInterval, Intervals
from fairlead.live.timeline.outages import Outage, joined
from fairlead.live.timeline.shares import Share, ShareColumns, ShareSample
from fairlead.store import Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")

_PERIOD_S = 5.0
_SAMPLE_S = 30.0
"""time between two samples of shares"""
_MAX_LEASES = 20_000
"""leases kept of one hour"""
_MAX_OUTAGES = 5_000
"""outages kept of one hour"""
_MAX_TENANTS = 200
"""tenants kept of one sample, those with the largest shares"""


class _OpenHour:
    """Leases, samples and outages of an hour that is not over."""

    def __init__(self, stored: Hour) -> None:
        self.leases = {row.lease: row for row in stored.intervals.rows()}
        self.samples = stored.shares.rows()
        self.outages = [*stored.outages]

    def add(self, interval: HeldInterval) -> None:
        if interval.lease in self.leases or len(self.leases) < _MAX_LEASES:
            self.leases[interval.lease] = interval

    def add_outages(self, *outages: Outage) -> None:
        self.outages = joined((*self.outages, *outages))[:_MAX_OUTAGES]

    def as_hour(self) -> Hour:
        return Hour(
            Intervals.of(self.leases.values()), ShareColumns.of(self.samples), self.outages
        )


@dataclass(frozen=True, slots=True)
class RecentHours:
    """Copies of the hours that may still change; any thread may turn them into columns."""

    over: Mapping[int, Hour]
    """hours that are not stored yet"""
    hour: int
    """the present hour"""
    leases: Sequence[HeldInterval]
    samples: Sequence[ShareSample]
    outages: Sequence[Outage]

    def hours(self) -> dict[int, Hour]:
        """Return the hours; thousands of leases take a while."""
        shares = ShareColumns.of(self.samples)
        present = Hour(Intervals.of(self.leases), shares, self.outages)
        return {**self.over, self.hour: present}


class TimelineRecorder:
    """Keeps the present hour, and stores it every few seconds.

    At the end of an hour its document takes the leases that are still open, so that a window of
    time needs the documents of its hours only. A replay of the event log brings ended leases
    again, which replace themselves.
    """

    def __init__(
        self,
        store: Store,
        token: int,
        counters: JobCounters,
        queries: Queries,
        *,
        clock: Clock,
        workers: Workers,
    ) -> None:
        self._store, self._token = store, token
        self._counters, self._queries = counters, queries
        self._clock, self._workers = clock, workers
        self._hour = 0
        """the present hour"""
        self._present = _OpenHour(Hour.empty())
        self._over: dict[int, Hour] = {}
        """past hours that are not stored yet"""
        self._saved = (0, 0, 0, 0)
        """hour and numbers of leases, samples and outages that were stored last"""

    def restore(self) -> None:
        """Load the newest hour."""
        now = hour_of(self._clock.now())
        newest = self._store.document(KIND, NEWEST)
        stored = int(newest) if newest is not None and newest.isdecimal() else now
        self._hour = min(max(stored, now - KEPT_HOURS), now)
        text = self._store.document(KIND, key(self._hour))
        self._present = _OpenHour(Hour.from_text(text))

    async def run(self) -> None:
        """Collect and store until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            self._sample()
            self._collect()
            if self._state != self._saved:
                state, unsaved = self._state, self._unsaved()
                await self._workers.write(self._save, unsaved)
                self._saved = state
                for hour in unsaved.over:
                    del self._over[hour]

    def save_all(self) -> None:
        """Store everything, at the end of the server."""
        self._collect()
        try:
            self._save(self._unsaved())
        except Exception as error:  # no decision depends on the timeline
            log.warning("timeline.unwritten", error=str(error))

    def recent(self) -> RecentHours:
        """Return the hours that may still change, with the leases that are open now."""
        self._collect()
        now, present = self._clock.now(), self._present
        leases = {**present.leases}
        leases.update((row.lease, row) for row in self._counters.open_intervals(now))
        outages = joined((*present.outages, *self._counters.outages.open(now)))
        samples = [*present.samples, self._sample_at(now)]
        return RecentHours(dict(self._over), self._hour, [*leases.values()], samples, outages)

    @property
    def _state(self) -> tuple[int, int, int, int]:
        present = self._present
        return self._hour, len(present.leases), len(present.samples), len(present.outages)

    def _unsaved(self) -> RecentHours:
        present = self._present
        return RecentHours(
            dict(self._over),
            self._hour,
            [*present.leases.values()],
            [*present.samples],
            [*present.outages],
        )

    def _save(self, unsaved: RecentHours) -> None:
        hours = unsaved.hours()
        changes: list[Change] = []
        for hour, each in hours.items():
            changes += [Put(KIND, key(hour), each.as_text()), Remove(KIND, key(hour - KEPT_HOURS))]
        changes.append(Put(KIND, NEWEST, str(max(hours))))
        self._store.append(self._token, 0, [], changes)

    # -- leases, outages and shares --------------------------------------------------------------

    def _collect(self) -> None:
        """Take the leases and outages that have ended, and close past hours."""
        ended = self._counters.ended_intervals
        while ended:
            interval = ended.popleft()
            # Leases that ended in an earlier hour are in its document.
            if hour_of(interval.ended_at) >= self._hour:
                self._present.add(interval)
        over = self._counters.outages.ended
        while over:
            outage = over.popleft()
            if hour_of(outage.ended_at) >= self._hour:
                self._present.add_outages(outage)
        now = hour_of(self._clock.now())
        while self._hour < now:
            self._close_hour()

    def _close_hour(self) -> None:
        end = (self._hour + 1) * HOUR_S
        present, later = self._present, _OpenHour(Hour.empty())
        for row in [row for row in present.leases.values() if row.ended_at > end]:
            later.add(row)
            del present.leases[row.lease]
        for row in (*later.leases.values(), *self._counters.open_intervals(end)):
            if row.began_at < end:
                present.add(row._replace(ended_at=end, ending=OPEN))
        later.samples = [sample for sample in present.samples if sample.at >= end]
        present.samples = [sample for sample in present.samples if sample.at < end]
        later.outages = [outage for outage in present.outages if outage.ended_at > end]
        lasting = (*later.outages, *self._counters.outages.open(end))
        present.add_outages(
            *(each._replace(ended_at=end) for each in lasting if each.began_at < end)
        )
        present.outages = [outage for outage in present.outages if outage.ended_at <= end]
        self._over[self._hour] = present.as_hour()
        self._present, self._hour = later, self._hour + 1

    def _sample(self) -> None:
        """Take the shares of the tenants if they are due."""
        now, samples = self._clock.now(), self._present.samples
        if not samples or now - samples[-1].at >= _SAMPLE_S:
            samples.append(self._sample_at(now))

    def _sample_at(self, at: float) -> ShareSample:
        total = max(sum(count for count, _ in self._queries.device_counts().values()), 1)
        shares = {
            status.tenant.id: Share(status.entitled, status.devices / total)
            for status in self._queries.tenant_statuses(at)
            if status.entitled or status.devices
        }
        largest = sorted(shares.items(), key=lambda entry: -max(entry[1]))[:_MAX_TENANTS]
        return ShareSample(at, dict(largest))
