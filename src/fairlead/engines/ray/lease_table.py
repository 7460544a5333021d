"""Table of a scheduler's leases on Ray: stops them, declares parts lost, reports ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from fairlead.engines.base import Ended, Progressed, Report
from fairlead.engines.ray.connection import RayConnection, RayError
from fairlead.engines.ray.leases import RayLeasePart, TrackedRayLease
from fairlead.engines.ray.nodes import RayNode
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import saved_steps
from fairlead.engines.shared.nodes.files import JOB_FILE_ERRORS, CheckpointSaved
from fairlead.model.lease_outcome import FAILED_OUTCOMES, LeaseOutcome

log = structlog.get_logger("fairlead.ray")

AgentReport = Report | CheckpointSaved

_CLOSE_TIMEOUT_S = 1.0
"""seconds that pending calls have when the table is closed"""
_SLACK_S = 10.0
"""seconds between the end of a lease's grace and the killing of its keepers"""


@dataclass
class RayLeaseTable:
    """All leases whose end has not been reported, and the queue of reports."""

    ray: RayConnection
    prefix: str
    """prefix of the names of this scheduler's placement groups"""
    home: Callable[[str], str]
    """node → the scheduler's home there"""
    silence_s: float
    transfer: RayTransfer | None = None
    """transfers checkpoints and logs if nodes share no directory with the server"""
    nodes: dict[str, RayNode] = field(default_factory=dict)
    """name → node as Ray last listed it"""
    leases: dict[int, TrackedRayLease] = field(default_factory=dict)
    reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self._calls: set[asyncio.Task[Any]] = set()
        self._receiving: dict[tuple[str, int], asyncio.Task[bool]] = {}
        """(node, lease) → the last transfer from there"""

    async def close(self) -> None:
        """Give pending calls a moment, then cancel them."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CLOSE_TIMEOUT_S)
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # -- calls ----------------------------------------------------------------------------------

    def in_background(self, call: Awaitable[object]) -> None:
        """Await a call in a task; failures of Ray and of a job's files are only logged."""

        async def log_errors() -> None:
            try:
                await call
            except (RayError, *JOB_FILE_ERRORS) as error:
                log.warning("ray.refused", error=str(error))

        task = asyncio.create_task(log_errors())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def release(self, lease: int) -> None:
        """Remove the placement group of a lease."""
        self.in_background(self.ray.ask("release", f"{self.prefix}{lease}"))

    def forget(self, node: str, leases: Sequence[int]) -> None:
        """Remove the directories of leases on a node; an unreachable node does it later."""
        self._call_agent(node, "forget", leases)

    def _call_agent(self, name: str, method: str, *arguments: object) -> None:
        node = self.nodes.get(name)
        if node is not None and node.alive:
            self.in_background(
                self.ray.call(
                    node.id, method, self.home(name), *arguments, within_s=self.silence_s
                )
            )

    # -- leases ---------------------------------------------------------------------------------

    def started_on(self, node: str) -> dict[int, float | None]:
        """Return lease → grace if it has to stop, else None, of the leases running on a node."""
        return {
            lease.lease: lease.grace_s
            for lease in self.leases.values()
            if any(part.begun and part.ended is None for part in lease.parts if part.node == node)
        }

    def receive(
        self,
        node: str,
        reports: Sequence[AgentReport],
        on_failure: Callable[[], None],
    ) -> None:
        """Apply the reports of a node agent; ``on_failure`` makes the agent repeat them.

        Checkpoints and logs are transferred before the reports on them count, each lease's apart
        from the others': a job may save as much as it likes.
        """
        if self.transfer is None:
            for report in reports:
                self.handle_report(node, report)
            return
        for lease in list(self.leases.values()):
            part, key = lease.part_on(node), (node, lease.lease)
            if part is None or not part.begun:
                continue
            news = [report for report in reports if _lease_of(report) == lease.lease]
            before = self._receiving.get(key)
            if news or before is None or before.done():
                receiving = self._receive_from(self.transfer, lease, part, news, before)
                self._receiving[key] = self._run(receiving, on_failure)

    def forget_received(self, node: str) -> None:
        """Drop the transfers from a node whose agent repeats its reports."""
        for key in [key for key in self._receiving if key[0] == node]:
            self._receiving.pop(key).cancel()

    def _run(
        self, work: Coroutine[Any, Any, bool], on_failure: Callable[[], None]
    ) -> "asyncio.Task[bool]":
        async def attempt() -> bool:
            try:
                return await work
            except (RayError, OSError) as error:
                log.warning("ray.transfer-failed", error=str(error))
                on_failure()
                return False

        task = asyncio.create_task(attempt())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _receive_from(
        self,
        transfer: RayTransfer,
        lease: TrackedRayLease,
        part: RayLeasePart,
        reports: Sequence[AgentReport],
        before: "asyncio.Task[bool] | None",
    ) -> bool:
        """Transfer the files of one lease, then apply its reports; return whether both worked."""
        if before is not None and not await before:
            return False  # the agent repeats these reports, too
        for report in reports:
            if isinstance(report, CheckpointSaved):
                try:
                    await transfer.download_checkpoint(lease, part, report)
                except JOB_FILE_ERRORS as error:  # the committed checkpoint stays
                    log.warning("ray.checkpoint-refused", lease=lease.lease, why=str(error))
        has_ended = any(isinstance(report, Ended) for report in reports)
        await transfer.download_logs(lease, part, has_ended=has_ended)
        for report in reports:
            self.handle_report(part.node, report)
        if has_ended:
            self._receiving.pop((part.node, lease.lease), None)
        return True

    def handle_report(self, node: str, report: AgentReport) -> None:
        """Apply the report of a node agent."""
        if not isinstance(report, Ended | Progressed):
            return
        lease = self.leases.get(report.lease)
        part = lease.part_on(node) if lease is not None else None
        if lease is None or part is None:
            return
        if isinstance(report, Progressed):
            if report.steps > lease.steps and lease.wanted:
                lease.steps = report.steps
                self.reports.put_nowait(report)
            return
        if self.transfer is not None:  # only a checkpoint on the server counts
            report = replace(report, steps=saved_steps(lease.order))
            self.in_background(self.transfer.remove_from_node(lease.order, node))
        part.ended = report
        self._stop_rest_of_gang(lease, report)
        self.report_end(lease)

    def _stop_rest_of_gang(self, lease: TrackedRayLease, ended: Ended) -> None:
        """Stop the other parts of a gang after one part has ended early."""
        if ended.ending in FAILED_OUTCOMES:
            why = ended.message or f"members on another node exited with {ended.exit_codes}"
            # An incomplete gang cannot save a checkpoint, so it needs no grace.
            self.stop(lease, 0.0 if ended.ending == "lost" else lease.order.grace_s, why)
        elif ended.ending == "left":
            # The others would wait forever in a collective operation.
            self.stop(lease, lease.order.grace_s, "")

    def stop(self, lease: TrackedRayLease, grace_s: float, why: str) -> None:
        """Ask the keepers of a lease to stop; a later request can only shorten the grace."""
        if lease.grace_s is not None and lease.grace_s <= grace_s:
            return
        lease.stop_at, lease.grace_s = lease.stop_at or time.monotonic(), grace_s
        for part in lease.parts:
            if part.begun and part.ended is None:
                self._call_agent(part.node, "stop", lease.lease, grace_s, why)

    def kill_overdue(self, now: float) -> None:
        """Kill the keepers of leases that have not stopped after their grace."""
        for lease in list(self.leases.values()):
            if lease.stop_at is None or now <= lease.stop_at + (lease.grace_s or 0.0) + _SLACK_S:
                continue
            lease.stop_at = now
            for part in lease.parts:
                if part.ended is None:
                    self._call_agent(part.node, "kill", lease.lease)

    def report_end(self, lease: TrackedRayLease) -> None:
        """Report the end of a lease once all its parts have ended."""
        ended = lease.end()
        if ended is None or self.leases.get(lease.lease) is not lease:
            return
        del self.leases[lease.lease]
        if self.transfer is not None:
            self.transfer.forget(lease)
        if lease.wanted:
            self.reports.put_nowait(ended)
        self.release(lease.lease)

    def declare_part_lost(
        self,
        lease: TrackedRayLease,
        part: RayLeasePart,
        ending: LeaseOutcome,
        why: str,
        *,
        again: bool = False,
    ) -> None:
        """End a part that does not answer, and with it its lease; see its ``declare_lost``."""
        lease.declare_lost(part, ending, why, again=again)
        log.warning("ray.given-up", lease=lease.lease, node=part.node, why=why)
        assert part.ended is not None
        self._stop_rest_of_gang(lease, part.ended)
        for other in lease.parts:
            if other.ended is None and not other.begun:
                other.ended = Ended(lease.lease, ending, None, why)
        self.report_end(lease)

    def declare_node_lost(self, node: str, why: str) -> None:
        """End all parts on a node that does not answer."""
        for lease in list(self.leases.values()):
            part = lease.part_on(node)
            if part is not None:
                try:
                    self.declare_part_lost(lease, part, "lost", why, again=True)
                except OSError as error:  # the next check retries; other leases must not wait
                    log.warning("ray.lease-files", lease=lease.lease, error=str(error))


def _lease_of(report: AgentReport) -> int | None:
    return report.lease if isinstance(report, Ended | Progressed | CheckpointSaved) else None
