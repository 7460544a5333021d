"""The supervising actor of a node: starts keepers for all leases there, tells how they end.

There is one on each node, for all schedulers that use the cluster; each scheduler has a home
there, a directory in which the node's leases are. On its node a warden is a local engine: the same
keepers, lease directories and fences. It is an actor only to be reached, and holds nothing that is
not also on disk: keepers outlive it, and the next one finds them.
"""

import asyncio
import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import Ended, Order, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import free_port
from fairlead.engines.local.engine import LocalEngine, start_keeper
from fairlead.engines.ray.keeper import RAYLET
from fairlead.engines.shared.nodes.files import NodeFiles, Saved
from fairlead.engines.shared.recovery import lost_before_start
from fairlead.model.cluster import Cluster, Node

_CHECKPOINT_POLL_S = 0.1
"""how often to look for checkpoints that are on this node only"""
_IDLE_S = 900.0
"""after which a warden that nobody asks and that keeps nothing ends itself"""


@dataclass(frozen=True, slots=True)
class News:
    """What a warden has to tell."""

    last: int
    """the number of the last report; ask for what comes after it"""
    reports: tuple[Report | Saved, ...]
    alive: frozenset[int]
    """leases whose keepers live"""


class SchedulerAgent(LocalEngine):
    """One scheduler's leases on this node."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, Cluster((Node(home.name, ("any",)),)))
        self.shelf = NodeFiles(home)
        self._private = False
        """checkpoints are on this node only: tell of them"""
        self._told: list[Report | Saved] = []
        self._first = 0
        """the number of the first report that is kept"""
        self._new = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def begin(self, wanted: Mapping[int, float | None], private: bool) -> int:
        """Keep these leases, those with a grace are to stop; end all others; return where we are.

        A lease that is wanted but was never started will not be, whenever its launch may come.
        """
        self._first += len(self._told)
        self._told.clear()
        self.shelf.forget()
        if private and not self._private:
            self._private = True
            self._saving = asyncio.create_task(self._poll_checkpoints())
        for lease in wanted:
            directory = self._directory(lease)
            if not (directory / "order.json").exists():
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                if lease_dir.read_ended(directory) is None:
                    lease_dir.write_ended(directory, lost_before_start(lease))
        for directory in self._root.iterdir():
            lease = int(directory.name)
            if lease in self._pidfds:
                pass
            elif lease in wanted or lease_dir.is_alive(directory):
                self._watch(lease)
            if lease not in wanted:
                await self.tell_to_stop(lease, 0.0, "")
                # What was never to start stays marked, for its launch may yet come.
                if lease not in self._pidfds and (directory / "order.json").exists():
                    lease_dir.remove(directory)
        for lease, grace_s in wanted.items():
            if grace_s is not None:
                await self.tell_to_stop(lease, grace_s, "")
        return self._first

    async def tell_to_stop(self, lease: int, grace_s: float, why: str) -> None:
        """Have a keeper stop its members; after the grace it kills them."""
        if lease in self._pidfds:
            said = {"grace_s": grace_s, "why": why}
            lease_dir.write_json(self._directory(lease) / "stop", said)
            await self.stop(lease)

    async def kill(self, lease: int) -> None:
        """End a keeper that does not stop; its members end with it."""
        if lease in self._pidfds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfds[lease], signal.SIGKILL)

    async def news(self, after: int, wait_s: float) -> News:
        """Return what was reported after this number, as soon as there is something."""
        if self._first + len(self._told) <= after:
            self._new.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._new.wait()
        # What was asked for before is known: only the next ask may be for these again.
        known = max(after - self._first, 0)
        del self._told[:known]
        self._first += known
        reports = tuple(self._told)
        last = self._first + len(self._told)
        return News(last, reports, frozenset(self._pidfds))

    async def _listen(self) -> None:
        async for report in self.reports():
            if isinstance(report, Ended) and self._private:
                self._report_checkpoint(report.lease)  # first what it saved, then its end
            self._told.append(report)
            self._new.set()

    async def _poll_checkpoints(self) -> None:
        while True:
            for lease in tuple(self._pidfds):
                self._report_checkpoint(lease)
            await asyncio.sleep(_CHECKPOINT_POLL_S)

    def _report_checkpoint(self, lease: int) -> None:
        try:
            order = lease_dir.read_order(self._directory(lease))
        except FileNotFoundError:  # it was never started
            return
        saved = self.shelf.saved(order)
        if saved is not None:
            self._told.append(saved)
            self._new.set()

    def _start_keeper(self, directory: Path) -> int:
        # A job is not to take itself for a part of Ray, nor to see only Ray's choice of devices.
        own = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "CUDA_VISIBLE"))}
        own[RAYLET] = os.environ.get("RAY_RAYLET_PID", str(os.getppid()))
        return start_keeper(directory, "fairlead.engines.ray.keeper", own)


@dataclass
class Warden:
    """All schedulers' leases on this node, by their homes."""

    _schedulers: dict[str, SchedulerAgent] = field(default_factory=dict)
    _last_call_at: float = field(default_factory=time.monotonic)
    _idle: "asyncio.Task[None] | None" = None

    async def begin(self, home: str, wanted: Mapping[int, float | None], private: bool) -> int:
        """Take up a scheduler's leases; see ``SchedulerAgent.begin``."""
        return await self._scheduler_agent(home).begin(wanted, private)

    async def shelf(self, home: str, method: str, *arguments: object) -> object:
        """Do something with a scheduler's own files here; see ``NodeFiles``."""
        return await asyncio.to_thread(
            getattr(self._scheduler_agent(home).shelf, method), *arguments
        )

    async def launch(self, home: str, order: Order) -> None:
        """Start the keeper of a part, once."""
        await self._scheduler_agent(home).launch(order)

    async def stop(self, home: str, lease: int, grace_s: float, why: str) -> None:
        """Have a keeper stop its members."""
        await self._scheduler_agent(home).tell_to_stop(lease, grace_s, why)

    async def kill(self, home: str, lease: int) -> None:
        """End a keeper that does not stop."""
        await self._scheduler_agent(home).kill(lease)

    async def forget(self, home: str, leases: Collection[int]) -> None:
        """Remove what is left of leases whose ends are written down."""
        await self._scheduler_agent(home).forget(leases)

    async def news(self, home: str, after: int, wait_s: float) -> News:
        """Return what is new, as soon as there is something."""
        return await self._scheduler_agent(home).news(after, wait_s)

    async def port(self) -> int:
        """Return a port of this node that is free, for a gang to meet."""
        return free_port("")

    def _scheduler_agent(self, home: str) -> SchedulerAgent:
        self._last_call_at = time.monotonic()
        if self._idle is None:
            self._idle = asyncio.create_task(self._exit_when_idle())
        found = self._schedulers.get(home)
        if found is None:
            found = self._schedulers[home] = SchedulerAgent(Path(home))
        return found

    async def _exit_when_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_S / 10)
            busy = [one for one in self._schedulers.values() if await one.running()]
            if not busy and time.monotonic() - self._last_call_at > _IDLE_S:
                os._exit(0)
