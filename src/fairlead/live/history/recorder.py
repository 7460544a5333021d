"""Recorder of job histories: samples reported metrics and stores them in small batches."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence

import structlog

from fairlead.engines.base import Ended
from fairlead.live.accounting import JobCounters
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers
from fairlead.live.history.exits import shell_code
from fairlead.live.history.job_history import (
    JobHistory,
    JobReports,
    LeaseExit,
    LeaseRecord,
    merged,
)
from fairlead.live.history.metric_points import Point
from fairlead.live.history.results import KIND as RESULT_KIND
from fairlead.live.history.results import JobResults
from fairlead.live.leases.open_leases import OpenLease
from fairlead.store import Change, Put, Store

log = structlog.get_logger("fairlead.live")

KIND = "job-history"
_PERIOD_S = 1.0
_MAX_JOBS, _MAX_WRITE_S = 25, 0.02
"""jobs and seconds of one write, so that events do not wait for histories"""
_SLICE = 500
"""leases sampled before requests are served"""


class HistoryRecorder:
    """Keeps the reports of jobs that are not stored yet, and stores them every second.

    Renewals only mark their lease; the recorder samples marked leases. With many running jobs
    each is sampled less often, so that a kill of the server loses a few seconds of reports at
    most times, and memory and writes stay bounded.
    """

    def __init__(
        self,
        store: Store,
        token: int,
        counters: JobCounters,
        leases: Mapping[int, OpenLease],
        *,
        clock: Clock,
        workers: Workers,
    ) -> None:
        self._store, self._token = store, token
        self._counters, self._leases = counters, leases
        self._clock, self._workers = clock, workers
        self.results = JobResults()
        self._unsaved: dict[str, JobReports] = {}
        self._exits: dict[int, LeaseExit] = {}
        """ended lease → its ending, costs and exit codes"""

    def restore(self) -> None:
        """Load the results of all jobs."""
        self.results.restore(self._store.documents(RESULT_KIND))

    # -- reports --------------------------------------------------------------------------------

    def lease_ended(self, lease: OpenLease, ended: Ended, at: float) -> None:
        """Record the end of a lease before its event is handled."""
        self._sample(lease, at)
        start_s = end_s = None
        if lease.first_step_at is not None and not math.isnan(lease.launched_at):
            start_s = max(lease.first_step_at - lease.launched_at, 0.0)
        if lease.last_step_at is not None:
            end_s = max(at - lease.last_step_at, 0.0)
        codes = tuple(map(shell_code, ended.exit_codes))
        self._exits[lease.number] = LeaseExit(
            ending=ended.ending,
            start_s=start_s,
            end_s=end_s,
            began=_way_to_device(ended),
            left="offload" if ended.parked else "exit",
            switch=ended.switch,
            exit_codes=codes,
        )
        if ended.ending in ("finished", "failed"):
            self.results.record_exit(lease.job, lease.number, codes)

    def exit_change(self, job_id: str, message: str) -> Change:
        """Return the document of a job's result, to be stored with the end of its lease."""
        self.results.record_message(job_id, message)
        return self.results.of(job_id).document(job_id)

    async def sample_leases(self) -> None:
        """Sample the metrics of all leases that have reported some, if they are due."""
        interval_s = max(_PERIOD_S, len(self._leases) / _MAX_JOBS)
        for i, lease in enumerate(tuple(self._leases.values())):
            if lease.has_new_metrics:
                at = self._clock.now()
                if at - lease.sampled_at >= interval_s:
                    self._sample(lease, at)
            if i % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    def _sample(self, lease: OpenLease, at: float) -> None:
        if not lease.has_new_metrics:
            return
        lease.has_new_metrics, lease.sampled_at = False, at
        self.results.update_metrics(lease.job, lease.metrics)
        self._reports(lease.job).points += [
            (name, Point.of(at, lease.steps, value))
            for name, value in lease.metrics.items()
            if value is not None
        ]

    def _reports(self, job_id: str) -> JobReports:
        return self._unsaved.setdefault(job_id, JobReports())

    def _collect_leases(self) -> None:
        """Take the leases that have ended since the last time."""
        while self._counters.ended_leases:
            job_id, record = self._counters.ended_leases.popleft()
            self._reports(job_id).leases.append(self._with_exit(record))

    def _with_exit(self, record: LeaseRecord) -> LeaseRecord:
        exit_ = self._exits.pop(record.lease, None)
        return record if exit_ is None else exit_.added_to(record)

    # -- storage --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sample and store reports until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.sample_leases()
            self._collect_leases()
            if self._unsaved:
                batch = self._batch()
                saved = await self._workers.write(self._save, batch, _MAX_WRITE_S)
                self._forget(batch, saved)

    def save_all(self) -> None:
        """Store all reports, at the end of the server."""
        for lease in self._leases.values():
            self._sample(lease, self._clock.now())
        self._collect_leases()
        try:
            while self._unsaved:
                batch = self._batch()
                self._forget(batch, self._save(batch, _MAX_WRITE_S))
        except Exception as error:  # no decision depends on histories
            log.warning("history.unwritten", error=str(error))

    def forget(self, job_id: str) -> None:
        """Drop the reports and the result of a job that is no longer kept."""
        self._collect_leases()
        self._unsaved.pop(job_id, None)
        self.results.forget(job_id)

    def _batch(self) -> dict[str, tuple[JobReports, Change]]:
        """Return copies of the oldest reports; the reports stay until they are stored."""
        return {
            job_id: (
                JobReports([*reports.leases], [*reports.points]),
                self.results.of(job_id).document(job_id),
            )
            for job_id, reports in list(self._unsaved.items())[:_MAX_JOBS]
        }

    def _save(
        self, batch: Mapping[str, tuple[JobReports, Change]], limit_s: float
    ) -> Sequence[str]:
        """Store a batch, at least one job of it; return the stored jobs."""
        until = time.monotonic() + limit_s
        changes: list[Change] = []
        saved: list[str] = []
        for job_id, (reports, result) in batch.items():
            history = merged(self._store.document(KIND, job_id), [reports])
            changes += [Put(KIND, job_id, history.as_text()), result]
            saved.append(job_id)
            if time.monotonic() > until:
                break
        self._store.append(self._token, 0, [], changes)
        return saved

    def _forget(
        self, batch: Mapping[str, tuple[JobReports, Change]], saved: Sequence[str]
    ) -> None:
        for job_id in saved:
            stored, reports = batch[job_id][0], self._unsaved.pop(job_id, None)
            if reports is None:  # the job was removed meanwhile
                continue
            # Reports that came meanwhile wait behind those of other jobs.
            del reports.leases[: len(stored.leases)]
            del reports.points[: len(stored.points)]
            if reports.leases or reports.points:
                self._unsaved[job_id] = reports

    async def history(self, job_id: str) -> JobHistory:
        """Return the history of a job up to now."""
        for lease in self._leases.values():
            if lease.job == job_id:
                self._sample(lease, self._clock.now())
        self._collect_leases()
        unsaved = self._unsaved.get(job_id, JobReports())
        copy = JobReports([*unsaved.leases], [*unsaved.points])
        return await asyncio.to_thread(lambda: merged(self._store.document(KIND, job_id), [copy]))


def _way_to_device(ended: Ended) -> str:
    if ended.handed_over:
        return "hand-over"
    return "resume" if ended.resumed else "start"
