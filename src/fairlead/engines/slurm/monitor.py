"""Monitor of leases and nodes on Slurm: polls the keepers' files often, Slurm's tables less often.

A keeper reports its end in a file. A silent keeper is dead if Slurm no longer lists its job; if
Slurm still lists it as running, its node is lost, which Slurm itself notices much later.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.engines.base import NodeJoined, Report
from fairlead.engines.slurm.commands import SlurmError, SlurmJob, SlurmNode
from fairlead.engines.slurm.foreign_jobs import ForeignDevices, LeasedDevices
from fairlead.engines.slurm.lease_table import SlurmLeaseTable
from fairlead.engines.slurm.leases import (
    PartFiles,
    SlurmLeasePart,
    TrackedSlurmLease,
    file_server_time_ns,
)
from fairlead.engines.slurm.node_selection import NodeSelection
from fairlead.engines.slurm.nodes import SlurmNodeStatus
from fairlead.model.cluster import Node

log = structlog.get_logger("fairlead.slurm")

_FILE_POLL_S = 0.2
_MISSING_JOB_S = 2.0
"""seconds of silence after which a keeper is dead if Slurm no longer lists its job"""
_SETTLE_S = 5.0
"""seconds until jobs that a dead scheduler submitted show up in Slurm's queue"""
_SLACK_S = 10.0
"""seconds between the end of a lease's grace and the cancellation of its jobs"""
_MIN_POLL_S = 2.0
"""seconds that the monitor itself must observe a keeper's silence before it counts"""
_START_SILENCES = 4
"""allowed silences (multiples of ``silence_s``) while a keeper starts"""


@dataclass
class SlurmMonitor:
    """Watches nodes and leases, and reports changes to the lease table's queue."""

    table: SlurmLeaseTable
    clock: Path
    """file beside the keepers' files whose modification time gives the file server's clock"""
    selection: NodeSelection
    status: SlurmNodeStatus
    foreign: ForeignDevices
    silence_s: float
    start_within_s: float
    poll_s: float
    complete: bool = False
    """all leases are in the table, so other jobs with our prefix are orphans"""

    def __post_init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._poll_now = asyncio.Event()

    def start(self) -> None:
        """Start the monitoring tasks."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(
                    self._repeat(self.read_lease_dirs, asyncio.Event(), _FILE_POLL_S)
                ),
                asyncio.create_task(self._repeat(self.poll_slurm, self._poll_now, self.poll_s)),
            ]

    async def close(self) -> None:
        """Stop monitoring."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def poll_soon(self) -> None:
        """Poll Slurm without waiting for the end of the interval."""
        self._poll_now.set()

    async def _repeat(
        self, poll: Callable[[], Awaitable[None]], soon: asyncio.Event, every_s: float
    ) -> None:
        while True:
            try:
                await poll()
            except (SlurmError, OSError) as error:
                log.warning("slurm.unreachable", error=str(error))
            try:
                async with asyncio.timeout(every_s):  # wait_for may lose a cancellation
                    await soon.wait()
                await asyncio.sleep(_FILE_POLL_S)
            except TimeoutError:
                pass
            soon.clear()

    # -- the keepers' files ---------------------------------------------------------------------

    async def read_lease_dirs(self) -> None:
        """Read the keepers' files and report changes."""
        leases = list(self.table.leases.values())
        if not leases:
            return
        states, server_ns = await asyncio.to_thread(_read_lease_dirs, leases, self.clock)
        now = time.monotonic()

        def age_s(heartbeat: int) -> float:
            # Silence before the server's start counts too; but after a suspension of the whole
            # machine keepers need time to wake up.
            longest = max(self.silence_s - _MIN_POLL_S, 0.0)
            return min(max((server_ns - heartbeat) / 1e9, 0.0), longest)

        for lease, (parts, steps) in zip(leases, states, strict=True):
            for part, files in zip(lease.parts, parts, strict=True):
                part.update(files, now, age_s)
            try:
                self.table.report_changes(lease, steps)
            except OSError as error:  # the next poll retries
                log.warning("slurm.lease-files", lease=lease.lease, error=str(error))

    # -- Slurm's tables -------------------------------------------------------------------------

    async def poll_slurm(self) -> None:
        """Compare Slurm's nodes and jobs with the lease table."""
        polled_at = time.monotonic()
        nodes, joined = await self.selection.refresh()
        jobs = self.table.own_jobs(await self.table.slurm.jobs(self.table.prefix))
        now = time.monotonic()
        # Nodes first: a lost lease's job must not be placed on the same node again.
        self._report_nodes(nodes, joined, jobs.values(), now)
        for lease in list(self.table.leases.values()):
            for part in lease.parts:
                if part.ended is None and lease.submitted and lease.since < polled_at:
                    await self._check_liveness(lease, part, jobs.get(part.name), now)
        for report in self.foreign.update(
            nodes, self.selection.registry.machines, jobs.values(), self._leased_devices(jobs)
        ):
            log.debug("slurm.taken", node=report.node, devices=report.numbers)
            self._report(report)
        await self._yield_to_others(jobs)
        if self.complete:
            await self.table.cancel_orphans(jobs.values())
        await self.table.report_removed(jobs.values())
        await self.table.remove_settled(jobs)

    def _report_nodes(
        self,
        nodes: Mapping[str, SlurmNode],
        joined: Collection[Node],
        jobs: Collection[SlurmJob],
        now: float,
    ) -> None:
        registry = self.selection.registry
        for node in joined:
            log.info("slurm.node-found", node=node.id, devices=len(node.devices))
            self._report(NodeJoined(node))
            self.status.repeat_if_down(registry.machine_of.get(node.id, node.id))
        heard: dict[str, bool] = {}
        for part in self.table.parts():
            heard[part.node] = heard.get(part.node, False) or part.answers(now, self.silence_s)
        for report in self.status.update_all(nodes, registry.machines, jobs, heard, now):
            log.info("slurm.node", report=str(report))
            self._report(report)

    def _report(self, report: Report) -> None:
        for each in self.selection.registry.by_node(report):
            self.table.reports.put_nowait(each)

    def _leased_devices(self, jobs: Mapping[str, SlurmJob]) -> dict[str, LeasedDevices]:
        """Return node → the devices of our leases there."""
        running: dict[str, set[int]] = {}
        waiting: dict[str, set[int]] = {}
        for part in self.table.parts():
            job = jobs.get(part.name)
            runs = part.ended is None and job is not None and job.state != "PENDING"
            numbers = (running if runs else waiting).setdefault(part.node, set())
            numbers |= {number for _, number in part.order.devices}
        return {
            name: LeasedDevices(running.get(name, ()), waiting.get(name, ()))
            for name in running.keys() | waiting.keys()
        }

    async def _yield_to_others(self, jobs: Mapping[str, SlurmJob]) -> None:
        """End parts that wait for devices which Slurm has given to others."""
        for lease in list(self.table.leases.values()):
            for part in lease.parts:
                job, taken = jobs.get(part.name), self.foreign.taken.get(part.node, ())
                waits = part.ended is None and job is not None and job.state == "PENDING"
                if waits and any(number in taken for _, number in part.order.devices):
                    why = "devices are held by others"
                    await self.table.declare_part_lost(lease, part, "lost", why)

    # -- liveness -------------------------------------------------------------------------------

    async def _check_liveness(
        self, lease: TrackedSlurmLease, part: SlurmLeasePart, job: SlurmJob | None, now: float
    ) -> None:
        # The transfer of the last checkpoint may take long after the members have ended.
        late = (
            lease.stop_at is not None
            and now > lease.stop_at + lease.order.grace_s + _SLACK_S
            and not part.transfers
        )
        if part.removed:
            if job is None:
                why = "its lease directory was removed"
                await self.table.declare_part_lost(lease, part, "lost", why)
            else:  # the devices are free once Slurm has ended it
                await self.table.cancel([part])
        elif job is None:
            await self._check_missing_job(lease, part, late, now)
        elif job.state == "PENDING":
            if now - lease.since > self.start_within_s:
                why = f"Slurm did not start it within {self.start_within_s:g} s: {job.reason}"
                await self.table.declare_part_lost(lease, part, "lost", why)
        elif job.state in ("SUSPENDED", "STOPPED"):
            part.runs_since = now
        else:
            part.runs_since = part.runs_since or now
            started = part.heartbeat_seen_at is not None
            if part.quiet_s(now) > self.silence_s * (1 if started else _START_SILENCES):
                await self._declare_lost(lease, part, now)
            elif late:
                await self.table.cancel([part])

    async def _check_missing_job(
        self, lease: TrackedSlurmLease, part: SlurmLeasePart, late: bool, now: float
    ) -> None:
        declare_lost = self.table.declare_part_lost
        if part.heartbeat_seen_at is None:
            if now - lease.since > _SETTLE_S or lease.fresh:
                if lease.stop_at is not None:
                    await declare_lost(lease, part, "left", "stopped before it started")
                else:
                    why = _with_last_output("ended before it started", part)
                    await declare_lost(lease, part, "lost", why)
        elif part.quiet_s(now) > _MISSING_JOB_S:
            await declare_lost(lease, part, "lost", _with_last_output("keeper died", part))
        elif late:
            await declare_lost(lease, part, "lost", "keeper does not stop")
        elif lease.stop_at is None:
            # Slurm has dropped the job because the node's daemon is down; the keeper still runs.
            lease.stop_at = now
            lease.request_stop(lease.order.grace_s)

    async def _declare_lost(
        self, lease: TrackedSlurmLease, part: SlurmLeasePart, now: float
    ) -> None:
        """End a silent part, and all others on its node unless one of them answers."""
        others = [
            (other, each)
            for other in self.table.leases.values()
            for each in other.parts
            if each.node == part.node and each.ended is None and each is not part
        ]
        if any(each.answers(now, self.silence_s) for _, each in others):
            await self.table.declare_part_lost(lease, part, "lost", "keeper does not answer")
            return
        for report in self.status.mark_silent(part.node, now):
            log.warning("slurm.node-silent", node=part.node)
            self._report(report)
        why = f"node {part.node} does not answer"
        for other, each in [(lease, part), *others]:
            await self.table.declare_part_lost(other, each, "lost", why)


def _with_last_output(why: str, part: SlurmLeasePart) -> str:
    """Append the last line of a part's log to a message: the log itself will be removed."""
    line = part.last_output_line()
    return f"{why}: {line}" if line else why


def _read_lease_dirs(
    leases: Sequence[TrackedSlurmLease], clock: Path
) -> tuple[list[tuple[list[PartFiles | None], float | None]], int]:
    """Read the keepers' files and the file server's clock; shared file systems may be slow."""
    states = [_read_lease_dir(lease) for lease in leases]
    unseen = any(part.heartbeat is None for lease in leases for part in lease.parts)
    return states, file_server_time_ns(clock) if unseen else 0


def _read_lease_dir(lease: TrackedSlurmLease) -> tuple[list[PartFiles | None], float | None]:
    """Read the keepers' files of a lease; unreadable ones hide no other lease's."""
    try:
        return [part.read() for part in lease.parts], lease.printed_steps()
    except OSError as error:
        log.warning("slurm.lease-files", lease=lease.lease, error=str(error))
        return [None] * len(lease.parts), None
