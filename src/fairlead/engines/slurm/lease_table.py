"""Table of a scheduler's leases on Slurm: declares parts lost, reports ends, cleans up."""

import asyncio
import time
from collections.abc import Awaitable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.engines.base import Ended, Progressed, Report, Started
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.commands import Slurm, SlurmError, SlurmJob
from fairlead.engines.slurm.leases import SlurmLeasePart, TrackedSlurmLease
from fairlead.model.lease_outcome import LeaseOutcome

log = structlog.get_logger("fairlead.slurm")


@dataclass
class SlurmLeaseTable:
    """All leases whose end has not been reported, and the queue of reports."""

    slurm: Slurm
    prefix: str
    """prefix of the names of this scheduler's Slurm jobs"""
    root: Path
    """directory with the lease directories"""
    user: int | None = None
    """Unix user ID that submits all jobs; None: each is submitted as its tenant's user"""
    leases: dict[int, TrackedSlurmLease] = field(default_factory=dict)
    reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue)
    removed: dict[int, str] = field(default_factory=dict)
    """open lease without a usable directory → the message of its end"""
    settled: set[int] = field(default_factory=set)
    """leases whose ends are persisted, so that their directories can be removed"""

    def __post_init__(self) -> None:
        self._orphans: set[str] = set()
        """IDs of orphaned jobs at the last poll"""
        self._idle: set[int] = set()
        """settled leases without a job in Slurm's queue at the last poll"""

    def own_jobs(self, jobs: Iterable[SlurmJob]) -> dict[str, SlurmJob]:
        """Return this scheduler's jobs by name: jobs of other users may have the same names."""
        owners = {part.name: part.user for part in self.parts()}
        return {
            job.name: job
            for job in jobs
            if job.user == owners.get(job.name, job.user) and self.user in (None, job.user)
        }

    def parts(self) -> Iterator[SlurmLeasePart]:
        """Yield the parts of all leases."""
        return (part for lease in self.leases.values() for part in lease.parts)

    def report_changes(self, lease: TrackedSlurmLease, steps: float | None) -> None:
        """Report the start, the progress and the end of a lease, each once."""
        if self.leases.get(lease.lease) is not lease:
            return
        if not lease.has_started and all(part.has_started for part in lease.parts):
            lease.has_started = True
            self._report(lease, Started(lease.lease))
        if steps is not None and steps != lease.steps:
            lease.steps = steps
            self._report(lease, Progressed(lease.lease, steps))
        ended = lease.end()
        if ended is not None:
            del self.leases[lease.lease]
            self._report(lease, ended)
            if not lease.wanted:
                self.settled.add(lease.lease)

    def _report(self, lease: TrackedSlurmLease, report: Report) -> None:
        if lease.wanted:
            self.reports.put_nowait(report)

    async def suppress_slurm_errors(self, *calls: Awaitable[None]) -> None:
        """Make calls to Slurm; log the failed ones, which later polls repeat."""
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, SlurmError):
                log.warning("slurm.refused", error=str(result))
            elif isinstance(result, BaseException):
                raise result

    async def cancel(self, parts: Iterable[SlurmLeasePart]) -> None:
        """Cancel the Slurm jobs of parts."""
        await self.suppress_slurm_errors(*(self.slurm.cancel(part.name) for part in parts))

    async def declare_part_lost(
        self, lease: TrackedSlurmLease, part: SlurmLeasePart, ending: LeaseOutcome, why: str
    ) -> None:
        """End a part that does not answer; if it is lost, stop the rest of its gang."""
        # The tenant's files may be slow, or locked by its job.
        try:
            await asyncio.to_thread(lease.declare_lost, part, ending, why)
        except OSError as error:  # the next poll retries; other leases must not wait for it
            log.warning("slurm.lease-files", lease=lease.lease, error=str(error))
            await self.cancel([part])
            return
        if ending == "lost":
            # An incomplete gang cannot save a checkpoint, so it needs no grace.
            lease.stop_at = lease.stop_at or time.monotonic()
            lease.request_stop(0.0)
        log.warning("slurm.given-up", lease=lease.lease, node=part.node, why=why)
        await self.cancel([part])

    async def cancel_orphans(self, jobs: Collection[SlurmJob]) -> None:
        """Cancel jobs with our prefix but without a lease, once two polls have seen them."""
        names = {part.name for part in self.parts()}
        orphans = {job.id for job in jobs if job.name not in names and job.state != "COMPLETING"}
        await self.suppress_slurm_errors(self.slurm.cancel_ids(orphans & self._orphans))
        self._orphans = orphans

    async def remove_settled(self, jobs: Collection[str]) -> None:
        """Remove the directories of settled leases whose jobs have left Slurm's queue.

        Slurm starts nothing that its queue does not list, and a keeper that still starts late
        finds no directory and runs nothing. As for orphans, two polls have to agree.
        """
        busy = {name.removeprefix(self.prefix).partition(".")[0] for name in jobs}
        idle = {lease for lease in self.settled if str(lease) not in busy}
        removable = idle & self._idle
        self._idle = idle - removable
        for lease in removable - self.leases.keys():
            directory = self.root / str(lease)
            try:
                if await asyncio.to_thread(slurm_leases.remove, directory):
                    self.settled.discard(lease)
            except OSError as error:
                log.warning("slurm.lease-files", lease=lease, error=str(error))

    async def report_removed(self, jobs: Collection[SlurmJob]) -> None:
        """Report open leases without a directory as lost, once Slurm has ended their jobs."""
        for lease, why in list(self.removed.items()):
            name = f"{self.prefix}{lease}."
            running = [job.id for job in jobs if job.name.startswith(name)]
            if running:
                await self.suppress_slurm_errors(self.slurm.cancel_ids(running))
            else:
                del self.removed[lease]
                self.reports.put_nowait(Ended(lease, "lost", None, why))
