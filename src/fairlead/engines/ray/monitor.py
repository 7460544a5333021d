"""Watches leases on Ray: each node's warden all the time, Ray's own view now and then.

A warden answers at least every second; one that falls silent, or whose node Ray calls dead, has
lost its leases. While Ray itself cannot be reached nobody is lost: its head may come back.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from fairlead.engines.base import Ended, LeaseOutcome, NodeJoined, Progressed, Report
from fairlead.engines.ray.connection import Connection, RayError
from fairlead.engines.ray.leases import Part, Watched
from fairlead.engines.ray.node_agent import News
from fairlead.engines.ray.nodes import (
    GPU,
    RayNode,
    Told,
    alive,
    taken,
)
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import saved_steps
from fairlead.engines.shared.nodes.files import Saved
from fairlead.model.cluster import Cluster, Node

log = structlog.get_logger("fairlead.ray")

_LOOK_S = 0.25
_REPORTS_TIMEOUT_S = 1.0
"""how long a warden that has nothing to tell waits before it says so"""
_BEGINS = 6
"""times the silence that a node's first warden may take to begin"""
_RECONCILE_RETRY_S = 2
"""times the silence that a warden may take which follows one that died"""
_AGAIN_S = 0.3
_SLACK_S = 10.0
"""after the grace of a lease, before its keepers are killed"""
_STARTS_S = 60.0
"""for a warden to be started and to answer for the first time"""
_BAD = ("failed", "lost", "refused")


@dataclass
class AgentLink:
    """What is known of a node from its warden."""

    name: str
    node: str = ""
    """Ray's number of the node whose warden we hear"""
    heard_at: float = 0.0
    limit: int = _BEGINS
    """times the silence after which it is taken for lost"""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    alive: frozenset[int] = frozenset()
    """leases whose keepers live there"""


@dataclass
class Watch:
    """All leases whose end has not been told, and what is told about them and the nodes."""

    ray: Connection
    prefix: str
    """of our placement groups' names"""
    home: Callable[[str], str]
    """node → the directory of our leases there"""
    register: Callable[[Iterable[RayNode]], Cluster]
    """writes down which nodes there are; all that there ever were"""
    told: Told
    accelerators: Sequence[str]
    silence_s: float
    poll_s: float
    head_within_s: float
    freight: RayTransfer | None = None
    """carries checkpoints and logs, where nodes share no directory with us"""
    leases: dict[int, Watched] = field(default_factory=dict)
    reports: "asyncio.Queue[Report]" = field(default_factory=asyncio.Queue)
    nodes: dict[str, RayNode] = field(default_factory=dict)
    known: Sequence[Node] = ()
    complete: bool = False
    """all leases of ours are in the table, so groups of others under our name are strays"""

    def __post_init__(self) -> None:
        self.links: dict[str, AgentLink] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._answered_at: float | None = None
        """when Ray last said which nodes there are"""
        self._away_since: float | None = None
        self._without: set[int] = set()
        """leases that had no placement group when we looked last"""

    def begin(self) -> None:
        """Start watching."""
        if self._tasks:
            return
        for loop in (self._every(self.ask, self.poll_s), self._every(self._judge, _LOOK_S)):
            self._tasks.append(asyncio.create_task(loop))
        for node in self.known:
            self._add(node)

    def _add(self, node: Node) -> None:
        link = self.links[node.id] = AgentLink(node.id, heard_at=time.monotonic())
        self._tasks.append(asyncio.create_task(self._follow(link)))

    async def close(self) -> None:
        """Stop watching; calls that are on their way have a moment."""
        for task in self._tasks:
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=_REPORTS_TIMEOUT_S)
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._calls, return_exceptions=True)
        self._tasks.clear()

    def do(self, work: Awaitable[object]) -> None:
        """Let a call to Ray take its time; what it misses will be done again."""

        async def quietly() -> None:
            try:
                await work
            except RayError as error:
                log.warning("ray.refused", error=str(error))

        task = asyncio.create_task(quietly())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _every(self, look: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            try:
                await look()
            except RayError as error:
                log.warning("ray.unreachable", error=str(error))
            await asyncio.sleep(every_s)

    # -- wardens --------------------------------------------------------------------------------

    async def _follow(self, link: AgentLink) -> None:
        """Hear what a node's warden has to tell, for ever."""
        while True:
            node = self.nodes.get(link.name)
            if node is None or not node.alive or self.ray.since is None:
                await asyncio.sleep(_AGAIN_S)
                continue
            if node.id != link.node:
                link.node, link.limit, link.heard_at = node.id, _BEGINS, time.monotonic()
            try:
                await self._hear(link, node)
            except (RayError, OSError) as error:
                link.ready.clear()
                log.warning("ray.warden", node=link.name, error=str(error))
                if link.limit == 1 and "ActorDied" in str(error):
                    link.limit = _RECONCILE_RETRY_S
                await asyncio.sleep(_AGAIN_S)

    async def _hear(self, link: AgentLink, node: RayNode) -> None:
        home, ray = self.home(link.name), self.ray
        private = self.freight is not None
        last = await ray.call(
            node.id, "begin", home, self._wanted(link), private, within_s=_STARTS_S
        )
        if GPU in node.resources.values():
            self.do(ray.ask("warm", node.id))
        first = True
        while first or link.ready.is_set():  # a node that was given up is taken up from the start
            # The first answer says which keepers live: only then is the node known.
            wait_s = 0.0 if first else _REPORTS_TIMEOUT_S
            within_s = _REPORTS_TIMEOUT_S + self.silence_s
            news: News = await ray.call(node.id, "news", home, last, wait_s, within_s=within_s)
            link.heard_at, link.limit = time.monotonic(), 1
            link.alive, last = news.alive, news.last
            if self.freight is not None:
                await self._download(self.freight, link.name, news)
                link.heard_at = time.monotonic()
            for report in news.reports:
                self._note(link.name, report)
            if first:
                link.ready.set()
                first = False

    def _wanted(self, link: AgentLink) -> dict[int, float | None]:
        """lease → how much grace it has to stop, None if it is to go on; of those on a node."""
        return {
            one.lease: one.grace_s
            for one in self.leases.values()
            if any(
                part.begun and part.ended is None for part in one.parts if part.node == link.name
            )
        }

    async def _download(self, freight: RayTransfer, node: str, news: News) -> None:
        """Have here what members have saved and printed, before what is told of them counts."""
        for report in news.reports:
            one = self.leases.get(report.lease) if isinstance(report, Saved) else None
            part = one.on(node) if one is not None else None
            if one is not None and part is not None and isinstance(report, Saved):
                await freight.take(one, part, report)
        for one in list(self.leases.values()):
            part = one.on(node)
            if part is not None and part.begun:
                await freight.logs(one, part)

    def _note(self, node: str, report: Report | Saved) -> None:
        """Take in what a warden reports."""
        if not isinstance(report, Ended | Progressed):
            return
        one = self.leases.get(report.lease)
        part = one.on(node) if one is not None else None
        if one is None or part is None:
            return
        if isinstance(report, Progressed):
            if report.steps > one.steps and one.ours:
                one.steps = report.steps
                self.reports.put_nowait(report)
            return
        if self.freight is not None:  # only what is here counts
            report = replace(report, steps=saved_steps(one.order))
            self.do(self.freight.clear(one.order, node))
        part.ended = report
        self._stop_rest_of_gang(one, report)
        self.conclude(one)

    def _stop_rest_of_gang(self, one: Watched, ended: Ended) -> None:
        """Have the rest of a gang leave of which a part has ended before its time."""
        if ended.ending in _BAD:
            why = ended.message or f"members elsewhere exited with {ended.exit_codes}"
            # A gang without all its members can save nothing together: no grace.
            self.stop(one, 0.0 if ended.ending == "lost" else one.order.grace_s, why)
        elif ended.ending == "left":
            # Left alone, the others would wait in a collective operation for ever.
            self.stop(one, one.order.grace_s, "")

    def stop(self, one: Watched, grace_s: float, why: str) -> None:
        """Have the keepers of a lease stop their members, sooner if they were told before."""
        if one.grace_s is not None and one.grace_s <= grace_s:
            return
        one.stop_at, one.grace_s = one.stop_at or time.monotonic(), grace_s
        for part in one.parts:
            if part.begun and part.ended is None:
                self._call(part.node, "stop", one.lease, grace_s, why)

    def forget(self, node: str, leases: Sequence[int]) -> None:
        """Have a node remove what is left of leases; one that is away does it when it is back."""
        self._call(node, "forget", leases)

    def _call(self, name: str, method: str, *arguments: object) -> None:
        node = self.nodes.get(name)
        if node is not None and node.alive:
            self.do(
                self.ray.call(
                    node.id, method, self.home(name), *arguments, within_s=self.silence_s
                )
            )

    def conclude(self, one: Watched) -> None:
        """Tell the end of a lease once all its parts have ended."""
        ended = one.end()
        if ended is None or self.leases.get(one.lease) is not one:
            return
        del self.leases[one.lease]
        if self.freight is not None:
            self.freight.forget(one)
        if one.ours:
            self.reports.put_nowait(ended)
        self.do(self.ray.ask("release", f"{self.prefix}{one.lease}"))

    # -- who is dead ----------------------------------------------------------------------------

    async def _judge(self) -> None:
        now = time.monotonic()
        answers = self.ray.since is not None and self._answered_at is not None
        if answers and now - (self._answered_at or 0.0) <= self.silence_s + self.poll_s:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = now
        for node in self.known:
            self._check_node(node, self.links[node.id], now)
        for one in list(self.leases.values()):
            late = one.stop_at is not None and now > one.stop_at + (one.grace_s or 0.0) + _SLACK_S
            if late:
                one.stop_at = now
                for part in one.parts:
                    if part.ended is None:
                        self._call(part.node, "kill", one.lease)

    def _check_node(self, node: Node, link: AgentLink, now: float) -> None:
        found = self.nodes.get(node.id)
        quiet_s = now - max(link.heard_at, self.ray.since or 0.0)
        if self._away_since is not None:
            # Ray's head is away. Wardens may be heard all the same; if not it may yet return.
            if quiet_s > self.silence_s and now - self._away_since > self.head_within_s:
                self._lose(link, "Ray cannot be reached", now)
        elif found is None:
            if quiet_s > self.silence_s:
                self._lose(link, f"Ray does not know node {node.id} any more", now)
        elif not found.alive:
            self._lose(link, f"Ray calls node {node.id} dead", now)
        elif quiet_s > self.silence_s * link.limit:
            if link.ready.is_set() or node.id not in self.told.down:
                self.do(self.ray.ask("end", found.id))
            self._lose(link, f"node {node.id} is silent", now)
        elif link.ready.is_set() and link.node == found.id:
            # A node on which something of ours still runs that was given up is not back yet.
            clean = link.alive <= set(self.leases)
            up = found.devices == node.devices and (clean or node.id not in self.told.down)
            self._tell(self.told.standing(node.id, up, now))

    def _lose(self, link: AgentLink, why: str, now: float) -> None:
        """Give up all leases of a node."""
        link.ready.clear()
        self._tell(self.told.standing(link.name, False, now))
        for one in list(self.leases.values()):
            part = one.on(link.name)
            if part is not None:
                self.give_up(one, part, "lost", why)

    def give_up(self, one: Watched, part: Part, ending: LeaseOutcome, why: str) -> None:
        """End a part of which nothing is heard, and with it its lease."""
        log.warning("ray.given-up", lease=one.lease, node=part.node, why=why)
        one.give_up(part, ending, why)
        assert part.ended is not None
        self._stop_rest_of_gang(one, part.ended)
        for other in one.parts:
            if other.ended is None and not other.begun:
                other.ended = Ended(one.lease, ending, None, why)
        self.conclude(one)

    def _tell(self, reports: Sequence[Report]) -> None:
        for report in reports:
            log.info("ray.node", report=str(report))
            self.reports.put_nowait(report)

    # -- Ray's view -----------------------------------------------------------------------------

    async def ask(self) -> None:
        """Take in which nodes there are, what others hold, and which groups are ours."""
        found = await self.ray.nodes()
        groups = await self.ray.groups(self.prefix)
        self.nodes = alive(RayNode.read(one, self.accelerators) for one in found)
        self._answered_at = time.monotonic()
        self._register_new_nodes()
        ours: dict[str, Counter[str]] = {}
        for group in groups:
            for index, node in group["nodes"].items():
                ours.setdefault(node, Counter()).update(group["bundles"][index])
        for node in self.known:
            self._update_taken_devices(node, ours)
        self._compare({int(group["name"].removeprefix(self.prefix)) for group in groups})

    def _register_new_nodes(self) -> None:
        if any(
            node.alive and node.devices and name not in self.links
            for name, node in self.nodes.items()
        ):
            self.known = self.register(self.nodes.values()).nodes
            for node in self.known:
                if node.id not in self.links:
                    self._add(node)
                    self._tell([NodeJoined(node)])

    def _update_taken_devices(self, node: Node, ours: dict[str, Counter[str]]) -> None:
        found = self.nodes.get(node.id)
        if found is None or not found.alive or found.devices != node.devices:
            return
        mine = Counter(
            {
                kind: int(ours.get(found.id, Counter())[resource])
                for kind, resource in found.resources.items()
            }
        )
        held = {
            number
            for one in self.leases.values()
            for name, number in one.order.devices
            if name == node.id
        }
        self._tell(self.told.devices(node.id, taken(node, found, held, mine)))

    def _compare(self, groups: set[int]) -> None:
        """End groups without a lease; have leases leave that have lost their group."""
        if self.complete:
            busy = {lease for link in self.links.values() for lease in link.alive}
            for lease in groups - set(self.leases) - busy:
                self.do(self.ray.ask("release", f"{self.prefix}{lease}"))
        without = {one.lease for one in self.leases.values() if one.has_started} - groups
        for lease in without & self._without:
            one = self.leases[lease]
            if one.stop_at is None:
                log.warning("ray.group-lost", lease=lease)
                self.stop(one, one.order.grace_s, "")
        self._without = without
