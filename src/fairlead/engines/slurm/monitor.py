"""Watches leases on Slurm: their keepers' files closely, Slurm's queue and nodes now and then.

A keeper that writes how it ended has ended. One that falls silent is dead if Slurm has cleared its
job away; if Slurm still takes it to run, its node is lost, which Slurm finds out much later.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.engines.base import LeaseOutcome, NodeJoined, Progressed, Report, Started
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.commands import (
    Slurm,
    SlurmError,
    SlurmJob,
    SlurmNode,
)
from fairlead.engines.slurm.foreign_jobs import Others, Ours
from fairlead.engines.slurm.leases import (
    Part,
    PartFiles,
    Watched,
    file_server_time_ns,
)
from fairlead.engines.slurm.node_selection import Choice
from fairlead.engines.slurm.nodes import SlurmNodeStatus
from fairlead.model.cluster import Node

log = structlog.get_logger("fairlead.slurm")

_LOOK_S = 0.2
_MISSING_JOB_S = 2.0
"""how long a keeper whose job Slurm has cleared away may be silent before it is taken for dead"""
_SETTLE_S = 5.0
"""within which what a scheduler that died has submitted shows up in Slurm's queue"""
_SLACK_S = 10.0
"""after the grace of a lease, before Slurm is asked to end it"""
_WAKES_S = 2.0
"""how long a keeper must be silent under our eyes before it is taken for dead"""
_BEGINS = 4
"""times the silence that a keeper may take to begin"""


@dataclass
class Watch:
    """All leases whose end has not been told, and what is told about them and the nodes."""

    slurm: Slurm
    prefix: str
    root: Path
    """of the leases' directories"""
    clock: Path
    """a file of which only the time matters, where the keepers' files are"""
    choice: Choice
    nodes: SlurmNodeStatus
    others: Others
    silence_s: float
    start_within_s: float
    poll_s: float
    leases: dict[int, Watched] = field(default_factory=dict)
    reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue)
    settled: set[int] = field(default_factory=set)
    """leases whose ends are written down, so that nobody needs their directories"""
    complete: bool = False
    """all leases of ours are in the table, so jobs of others under our name are strays"""

    def __post_init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._ask = asyncio.Event()
        self._strays: set[str] = set()
        self._idle: set[int] = set()
        """settled leases without a job in Slurm's queue when we last looked"""

    def begin(self) -> None:
        """Start watching."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._repeat(self.look, asyncio.Event(), _LOOK_S)),
                asyncio.create_task(self._repeat(self.ask, self._ask, self.poll_s)),
            ]

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def poll_soon(self) -> None:
        """Look at Slurm without waiting for the next time."""
        self._ask.set()

    async def quietly(self, *calls: Awaitable[None]) -> None:
        """Make calls to Slurm that will be made again should they fail."""
        for said in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(said, SlurmError):
                log.warning("slurm.refused", error=str(said))
            elif isinstance(said, BaseException):
                raise said

    async def _repeat(
        self, look: Callable[[], Awaitable[None]], soon: asyncio.Event, every_s: float
    ) -> None:
        while True:
            try:
                await look()
            except (SlurmError, OSError) as error:
                log.warning("slurm.unreachable", error=str(error))
            try:
                async with asyncio.timeout(every_s):  # wait_for may lose the word to stop
                    await soon.wait()
                await asyncio.sleep(_LOOK_S)
            except TimeoutError:
                pass
            soon.clear()

    # -- the keepers' files ---------------------------------------------------------------------

    async def look(self) -> None:
        """Take in what keepers have written, and tell what is new."""
        watched = list(self.leases.values())
        if not watched:
            return
        seen, there = await asyncio.to_thread(_read_lease_dirs, watched, self.clock)
        now = time.monotonic()

        def age_s(beat: int) -> float:
            # Whoever was silent while there was no server need not be waited for as long again;
            # but a machine that slept as a whole must have the time to wake up.
            longest = max(self.silence_s - _WAKES_S, 0.0)
            return min(max((there - beat) / 1e9, 0.0), longest)

        for one, (parts, steps) in zip(watched, seen, strict=True):
            for part, found in zip(one.parts, parts, strict=True):
                part.note(found, now, age_s)
            self._tell(one, steps)

    def _tell(self, one: Watched, steps: float | None) -> None:
        if self.leases.get(one.lease) is not one:
            return
        if not one.has_started and all(part.has_started for part in one.parts):
            one.has_started = True
            self._report(one, Started(one.lease))
        if steps is not None and steps != one.steps:
            one.steps = steps
            self._report(one, Progressed(one.lease, steps))
        ended = one.end()
        if ended is not None:
            del self.leases[one.lease]
            self._report(one, ended)
            if not one.ours:
                self.settled.add(one.lease)

    def _report(self, one: Watched, report: Report) -> None:
        if one.ours:
            self.reports.put_nowait(report)

    # -- Slurm's view ---------------------------------------------------------------------------

    async def ask(self) -> None:
        """Compare what Slurm says of nodes and jobs with what we know."""
        asked_at = time.monotonic()
        nodes, joined = await self.choice.look()
        jobs = await self.slurm.jobs(self.prefix)
        now = time.monotonic()
        # Nodes first: whoever hears that a lease is lost must not place its job there again.
        self._report_nodes(nodes, joined, jobs.values(), now)
        for one in list(self.leases.values()):
            for part in one.parts:
                if part.ended is None and one.submitted and one.since < asked_at:
                    await self._judge(one, part, jobs.get(part.name), now)
        for taken in self.others.look(
            nodes, self.choice.known, jobs.values(), self._devices(jobs)
        ):
            log.debug("slurm.taken", node=taken.node, devices=taken.numbers)
            self.reports.put_nowait(taken)
        await self._yield_to_others(jobs)
        await self._cancel_orphans(jobs.values())
        await self._remove_ended(jobs)

    def _report_nodes(
        self,
        nodes: Mapping[str, SlurmNode],
        joined: Collection[Node],
        jobs: Collection[SlurmJob],
        now: float,
    ) -> None:
        for node in joined:
            log.info("slurm.node-found", node=node.id, devices=len(node.devices))
            self.reports.put_nowait(NodeJoined(node))
        leased: dict[str, bool] = {}
        for part in (part for one in self.leases.values() for part in one.parts):
            heard = part.heartbeat_seen_at is not None and part.quiet_s(now) <= self.silence_s
            leased[part.node] = leased.get(part.node, False) or heard
        for report in self.nodes.judge(nodes, self.choice.known, jobs, leased, now):
            log.info("slurm.node", report=str(report))
            self.reports.put_nowait(report)

    def _devices(self, jobs: Mapping[str, SlurmJob]) -> dict[str, Ours]:
        """Return node → the devices of our leases there."""
        running: dict[str, set[int]] = {}
        waiting: dict[str, set[int]] = {}
        for part in (part for one in self.leases.values() for part in one.parts):
            job = jobs.get(part.name)
            runs = part.ended is None and job is not None and job.state != "PENDING"
            numbers = (running if runs else waiting).setdefault(part.node, set())
            numbers |= {number for _, number in part.order.devices}
        nodes = running.keys() | waiting.keys()
        return {name: Ours(running.get(name, ()), waiting.get(name, ())) for name in nodes}

    async def _yield_to_others(self, jobs: Mapping[str, SlurmJob]) -> None:
        """Give up what waits for devices that others were given before us."""
        for one in list(self.leases.values()):
            for part in one.parts:
                job, theirs = jobs.get(part.name), self.others.taken.get(part.node, ())
                waits = part.ended is None and job is not None and job.state == "PENDING"
                if waits and any(number in theirs for _, number in part.order.devices):
                    await self._give_up(one, part, "lost", "others hold its devices")

    async def _judge(self, one: Watched, part: Part, job: SlurmJob | None, now: float) -> None:
        # What members saved may take its time to be carried away; they themselves have ended.
        late = (
            one.stop_at is not None
            and now > one.stop_at + one.order.grace_s + _SLACK_S
            and not part.carries
        )
        if job is None:
            await self._check_missing_job(one, part, late, now)
        elif job.state == "PENDING":
            if now - one.since > self.start_within_s:
                why = f"Slurm did not start it in {self.start_within_s:g} s: {job.reason}"
                await self._give_up(one, part, "lost", why)
        elif job.state in ("SUSPENDED", "STOPPED"):
            part.runs_since = now
        else:
            part.runs_since = part.runs_since or now
            begun = part.heartbeat_seen_at is not None
            if part.quiet_s(now) > self.silence_s * (1 if begun else _BEGINS):
                await self._lose(one, part, now)
            elif late:
                await self.quietly(self.slurm.cancel(part.name))

    async def _check_missing_job(self, one: Watched, part: Part, late: bool, now: float) -> None:
        if part.heartbeat_seen_at is None:
            if now - one.since > _SETTLE_S or one.fresh:
                if one.stop_at is not None:
                    await self._give_up(one, part, "left", "it was stopped before it began")
                else:
                    why = _with("it ended before it began", part)
                    await self._give_up(one, part, "lost", why)
        elif part.quiet_s(now) > _MISSING_JOB_S:
            await self._give_up(one, part, "lost", _with("its keeper died", part))
        elif late:
            await self._give_up(one, part, "lost", "its keeper does not stop")
        elif one.stop_at is None:
            # Slurm has given the job up, for its node's daemon is away; the keeper still listens.
            one.stop_at = now
            one.tell_to_stop(one.order.grace_s)

    async def _lose(self, one: Watched, part: Part, now: float) -> None:
        """Give up a silent part; with it all of its node, unless others there are heard of."""
        there = [
            (other, its)
            for other in self.leases.values()
            for its in other.parts
            if its.node == part.node and its.ended is None and its is not part
        ]
        if any(
            its.heartbeat_seen_at is not None and its.quiet_s(now) <= self.silence_s
            for _, its in there
        ):
            await self._give_up(one, part, "lost", "its keeper is silent")
            return
        for report in self.nodes.lose(part.node, now):
            log.warning("slurm.node-silent", node=part.node)
            self.reports.put_nowait(report)
        for other, its in [(one, part), *there]:
            await self._give_up(other, its, "lost", f"node {part.node} is silent")

    async def _give_up(self, one: Watched, part: Part, ending: LeaseOutcome, why: str) -> None:
        one.give_up(part, ending, why)
        if ending == "lost":
            # A gang without all its members can save nothing together: no grace.
            one.stop_at = one.stop_at or time.monotonic()
            one.tell_to_stop(0.0)
        log.warning("slurm.given-up", lease=one.lease, node=part.node, why=why)
        await self.quietly(self.slurm.cancel(part.name))

    async def _cancel_orphans(self, jobs: Collection[SlurmJob]) -> None:
        """End jobs under our name that belong to no lease, once they were seen twice."""
        if not self.complete:
            return
        ours = {part.name for one in self.leases.values() for part in one.parts}
        strays = {job.name for job in jobs if job.name not in ours and job.state != "COMPLETING"}
        await self.quietly(*(self.slurm.cancel(name) for name in strays & self._strays))
        self._strays = strays

    async def _remove_ended(self, jobs: Collection[str]) -> None:
        """Remove the directories of leases whose ends are written down and whose jobs are gone.

        Slurm starts nothing that its queue does not show, and a keeper that begins late all the
        same finds no directory and runs nothing. Two looks, as for strays.
        """
        busy = {name.removeprefix(self.prefix).partition(".")[0] for name in jobs}
        idle = {lease for lease in self.settled if str(lease) not in busy}
        gone = idle & self._idle
        self._idle = idle - gone
        for lease in gone - self.leases.keys():
            directory = self.root / str(lease)
            if await asyncio.to_thread(slurm_leases.remove, directory):
                self.settled.discard(lease)


def _with(why: str, part: Part) -> str:
    """Return why a part has ended, with what its keeper said last: its log does not stay."""
    said = part.last_output_line()
    return f"{why}: {said}" if said else why


def _read_lease_dirs(
    watched: Sequence[Watched], clock: Path
) -> tuple[list[tuple[list[PartFiles | None], float | None]], int]:
    """Read what keepers have written, and the time there; shared file systems may be slow."""
    seen = [([part.read() for part in one.parts], one.printed_steps()) for one in watched]
    unseen = any(part.beat is None for one in watched for part in one.parts)
    return seen, file_server_time_ns(clock) if unseen else 0
