"""Removal of ended jobs, their files and old audit entries, in small batches beside the loop."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from fairlead.code_snapshot import location as code_snapshots
from fairlead.live.driver import Live
from fairlead.live.history.recorder import KIND as HISTORY_KIND
from fairlead.live.history.results import KIND as RESULT_KIND
from fairlead.live.retention.ended_jobs import ENDED, EndedJob, ended_jobs
from fairlead.live.retention.job_files import FileKind, remove_files, remove_job, size_of
from fairlead.live.retention.limits import RetentionLimits
from fairlead.model import events as ev
from fairlead.store import Audit, Change, Remove, RemoveOldAudit

log = structlog.get_logger("fairlead.live")

_DOCUMENTS = ("job", RESULT_KIND, HISTORY_KIND, "hold", "kill")
"""kinds of documents that belong to one job"""
_BATCH = 20
"""jobs removed in one transaction"""
_FORGET_BATCH = 500
"""removed jobs dropped from the tables at once"""
_AUDIT_BATCH = 1000
_MAX_AUDIT_DELAY_S = 86400.0
"""time by which the removal of audit entries is late, so that it adds few entries itself"""
_USER = "retention"
"""author of the audit entries"""


class RetentionCleaner:
    """Removes things whose age or size exceeds the limits.

    A removed job keeps its number and the numeric columns of its row in the scheduler's tables;
    its description, documents, files and counts go.
    """

    def __init__(self, live: Live, limits: RetentionLimits) -> None:
        self._live, self._limits = live, limits
        self._changed = asyncio.Event()
        """set when other limits hold"""
        self._without_files: dict[FileKind, set[str]] = {"logs": set(), "checkpoints": set()}
        """ended jobs whose files are gone"""
        self._sizes: dict[FileKind, dict[str, int]] = {"logs": {}, "checkpoints": {}}
        """bytes of the files of ended jobs, which no longer change"""

    async def run(self) -> None:
        """Remove things from time to time until cancelled; a failure is logged and tried again."""
        await self.forget_removed()
        while True:
            try:
                await self.clean()
            except Exception:  # the scheduler continues
                log.exception("retention.failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.period_s):
                    await self._changed.wait()
            self._changed.clear()

    def use(self, limits: RetentionLimits) -> None:
        """Remove things by other limits from now on."""
        self._limits = limits
        self._changed.set()

    async def clean(self) -> None:
        """Remove all things that exceed the limits now."""
        limits, now = self._limits, self._live.clock.now()
        if limits.keeps_all:
            return
        ended = await ended_jobs(self._live)
        if limits.jobs_s is not None:
            old = [job for job in ended if job.ended_at <= now - limits.jobs_s]
            ended = ended[len(old) :]
            await self._remove_jobs(old)
        await self._remove_files_of("logs", ended, limits.logs_s, limits.logs_bytes)
        await self._remove_files_of(
            "checkpoints", ended, limits.checkpoints_s, limits.checkpoints_bytes
        )
        if limits.audit_s is not None:
            await self._remove_audit(now, limits.audit_s)

    # -- jobs -----------------------------------------------------------------------------------

    async def _remove_jobs(self, jobs: Sequence[EndedJob]) -> None:
        for first in range(0, len(jobs), _BATCH):
            batch = [job.id for job in jobs[first : first + _BATCH]]
            removed = [job for job in batch if await self._remove(remove_job, job)]
            specs = [self._live.specs[job] for job in removed]
            # The files go first: a crash in between leaves jobs that the next removal finds.
            await self._forget(removed)
            await self._report("jobs", len(removed), jobs=removed)
            for tenant in {spec.tenant for spec in specs if spec.code_snapshot}:
                await self._remove_snapshots(tenant)

    async def _remove_snapshots(self, tenant: str) -> None:
        """Remove a tenant's code snapshots that no kept job has."""
        specs = self._live.specs.values()
        kept = {spec.code_snapshot for spec in specs if spec.tenant == tenant}
        data = self._live.config.data
        await asyncio.to_thread(code_snapshots.remove_unused, data, tenant, kept)

    async def _forget(self, jobs: Sequence[str]) -> None:
        """Remove all documents of jobs, and drop them from memory with these."""
        if not jobs:
            return

        def changes() -> Sequence[Change]:
            for job in jobs:
                self._drop(job)
            return [Remove(document, job) for job in jobs for document in _DOCUMENTS]

        await self._live.inbox.submit(lambda at: [ev.JobsRemoved(at, tuple(jobs))], changes)

    def _drop(self, job: str) -> None:
        live = self._live
        live.jobs.forget(job)
        live.suspended_jobs.discard(job)
        live.messages.pop(job, None)
        live.suspicious_reports.by_job.pop(job, None)
        live.history.forget(job)
        live.counters.forget(job)
        for sizes in self._sizes.values():
            sizes.pop(job, None)
        for gone in self._without_files.values():
            gone.discard(job)

    async def forget_removed(self) -> None:
        """Drop the counts of jobs that were removed after the last saved state.

        Also drop the descriptions of jobs that an earlier version removed.
        """
        queries, tally = self._live.queries, self._live.counters.tally
        ended = map(queries.job_id, queries.select_jobs(ENDED, running=False).tolist())
        counted = (job for job in tally if queries.find_job(job) is None)
        removed = sorted({*ended, *counted} - self._live.specs.keys() - {""})
        for first in range(0, len(removed), _FORGET_BATCH):
            await self._forget(removed[first : first + _FORGET_BATCH])

    # -- files ----------------------------------------------------------------------------------

    async def _remove_files_of(
        self,
        kind: FileKind,
        ended: Sequence[EndedJob],
        keep_s: float | None,
        max_bytes: int | None,
    ) -> None:
        """Remove the files of the jobs that ended too long ago, then those beyond the size."""
        gone, removed = self._without_files[kind], []
        if keep_s is not None:
            until = self._live.clock.now() - keep_s
            for job in ended:
                if job.ended_at <= until and job.id not in gone:
                    removed += await self._remove_kind(kind, job.id)
        if max_bytes is not None:
            left = [job.id for job in ended if job.id not in gone]
            sizes = [await self._size(kind, job) for job in left]
            excess = sum(sizes) - max_bytes
            for job_id, size in zip(left, sizes, strict=True):
                if excess <= 0:
                    break
                if size:
                    removed += await self._remove_kind(kind, job_id)
                    excess -= size
        await self._report(kind, len(removed), jobs=removed[:10])

    async def _remove_kind(self, kind: FileKind, job: str) -> list[str]:
        """Remove the files of a job; return it if it had any."""
        size = await self._size(kind, job)
        if not await self._remove(partial(remove_files, kind=kind), job):
            return []
        self._without_files[kind].add(job)
        self._sizes[kind].pop(job, None)
        return [job] if size else []

    async def _size(self, kind: FileKind, job: str) -> int:
        known = self._sizes[kind]
        if job not in known:
            directory = self._live.orders.job_dir(job)
            known[job] = await asyncio.to_thread(size_of, directory, kind)
        return known[job]

    async def _remove(self, remove: Callable[[Path], None], job: str) -> bool:
        """Remove files of a job in a thread; return False if they cannot be removed."""
        directory = self._live.orders.job_dir(job)
        try:
            await asyncio.to_thread(remove, directory)
        except OSError as error:
            log.warning("retention.failed", job=job, error=str(error))
            return False
        return True

    # -- audit entries --------------------------------------------------------------------------

    async def _remove_audit(self, now: float, keep_s: float) -> None:
        """Remove old entries once the oldest is older than the limit by a tenth or a day."""
        live, before = self._live, now - keep_s
        late = before - min(keep_s / 10, _MAX_AUDIT_DELAY_S)
        if not await asyncio.to_thread(live.store.old_audit_entries, late):
            return
        removal = RemoveOldAudit(before, _AUDIT_BATCH, Audit(now, _USER, "remove", "audit"))
        total = old = await asyncio.to_thread(live.store.old_audit_entries, before)
        while old:
            await live.write([removal])
            left = await asyncio.to_thread(live.store.old_audit_entries, before)
            if left == old:
                log.warning("retention.failed", error="an old audit entry was changed")
                break
            old = left
        await self._report("audit", total - old)

    # -- counts ---------------------------------------------------------------------------------

    async def _report(self, kind: str, number: int, **fields: object) -> None:
        """Log and count removals, if there were any."""

        def changes() -> Sequence[Change]:
            self._count(kind, number)
            return ()

        if number:
            await self._live.inbox.submit(lambda _: [], changes)
            log.info("retention.removed", kind=kind, count=number, **fields)

    def _count(self, kind: str, number: int) -> None:
        """Count removals; only while a batch is handled, as the counts are part of the state."""
        removed = self._live.counters.totals.removed
        removed[kind] = removed.get(kind, 0) + number
