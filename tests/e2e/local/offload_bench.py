"""The local engine with offload: leases that are preempted, and processes that die at points."""

import asyncio
import fcntl
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.local.bench import CLUSTER, Bench, uninterrupted
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder, Saved
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.confinement import cgroup
from fairlead.engines.local.engine import LocalEngine
from fairlead.job import checkpoint

STEPS = 200


class CommitLock:
    """The lock of a job's checkpoints: while it is held, none is committed."""

    def __init__(self, order: LaunchOrder) -> None:
        self._path = Path(order.checkpoint_dir) / "lock"
        self._file = -1

    def hold(self) -> None:
        self._file = os.open(self._path, os.O_RDWR)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        os.close(self._file)


class OffloadBench(Bench):
    """A bench whose engine lets processes park, and preempts leases after a few steps."""

    steps = STEPS

    def __init__(self, root: Path, server: LeaseServer, offload_gib: float = 8.0) -> None:
        super().__init__(root, server)
        self.engine = LocalEngine(root / "data", CLUSTER, offload_gib=offload_gib)
        self.crashes = root / "crashes"
        self.crashes.mkdir(exist_ok=True)

    def order(self, lease: int, *command: object, **more: Any) -> LaunchOrder:
        train = (sys.executable, self.root / "train.py", self.steps, self.root / "out", 0.015)
        environment = {failpoints.VARIABLE: str(self.crashes), "FAIRLEAD_CHECKPOINT_S": "1000"}
        order = super().order(lease, *(command or train), **{"total_steps": self.steps, **more})
        return replace(order, environment={**order.environment, **environment})

    async def preempt(
        self,
        order: LaunchOrder,
        *,
        after: int,
        commits: "CommitLock | None" = None,
        waits_for_save: bool = True,
    ) -> Ended:
        """Run a lease until its job has made some more steps, then preempt it.

        The returned steps are those that its process has saved, unless it is not waited for, or
        ``commits`` is held.
        """
        first = self.saved_steps(order)
        await self.engine.launch(order)
        self.server.leave_from[order.lease] = first + after

        def has_made() -> bool:
            steps = (one for one in self.server.renewals if one["lease"] == order.lease)
            return any(one["steps"] >= first + after for one in steps)

        ended = asyncio.create_task(self.ended(120.0))
        while not has_made() and not ended.done():
            await asyncio.sleep(0.005)
        if commits is not None:
            commits.hold()
        await self.engine.stop(order.lease)
        end = await ended
        if end.parked:
            assert checkpoint.fence(order.checkpoint_dir) == order.lease
        await self.engine.forget([order.lease])
        if end.unsaved is not None and waits_for_save and commits is None:
            end = replace(end, steps=(await self.saved(order)).steps)
        return end

    async def saved(self, order: LaunchOrder) -> Saved:
        """Return the report of a lease's process that has saved its steps, or will not."""

        async def wait() -> Saved:
            async for report in self.engine.reports():
                if isinstance(report, Saved):
                    return report
            raise AssertionError

        report = await asyncio.wait_for(wait(), 90.0)
        assert (report.lease, report.job) == (order.lease, order.job)
        return report

    def saved_steps(self, order: LaunchOrder) -> int:
        committed = checkpoint.latest(order.checkpoint_dir)
        return 0 if committed is None else committed.steps

    def processes(self, lease: int) -> list[int]:
        members = lease_dir.read_members(self.root / "data/leases" / str(lease))
        return [] if members is None else [members.keeper, *(pid for pid, _ in members.started)]

    async def die_at(
        self,
        points: Sequence[str],
        run_lease: Callable[[int], Awaitable[Ended]],
        *,
        first: int,
        tries: int,
    ) -> int:
        """Kill a process at each point, under one of the next leases; return the lease after them.

        No saved step may be lost, and none may count that is not saved. ``tries`` leases at most
        pass a point, and end as if nothing had happened.
        """
        lease, before = first, self.saved_steps(self.order(0))
        for point in points:
            ticket = self.crashes / point
            ticket.touch()
            for _ in range(tries):
                end = await run_lease(lease)
                lease += 1
                assert end.ending in ("left", "lost", "failed"), (point, end)
                saved = self.saved_steps(self.order(0))
                assert (end.steps or 0) == saved >= before, (point, end)
                before = saved
                if not ticket.exists() and end.ending == "left":
                    break
            assert not ticket.exists(), point
        return lease

    async def finish(self, order: LaunchOrder) -> Ended:
        """Run the last lease to its end; nothing of any lease may stay."""
        await self.engine.launch(order)
        end = await self.ended()
        assert end.ending == "finished", end
        await self.engine.forget([order.lease])
        await eventually(lambda: not os.listdir(self.root / "data/leases"))
        await self.engine.close()
        return end

    def check_results(self, ranks: int = 1) -> None:
        """Check that every rank has made every step once, in order."""
        for rank in range(ranks):
            assert self.result(rank) == {
                "weight": uninterrupted(self.steps),
                "steps": list(range(self.steps)),
            }


def is_frozen(pid: int, home: Path) -> bool:
    """Return whether a process is stopped, or its control group frozen."""
    group = cgroup.load(home)
    events = [] if group is None else [path / "cgroup.events" for path in group.directories]
    if any("frozen 1" in path.read_text() for path in events if path.exists()):
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def until_gone(pids: list[int]) -> None:
    """Wait until none of these processes lives."""
    await eventually(lambda: not alive(pids))


def alive(pids: list[int]) -> list[int]:
    """Return the living ones of these processes."""
    return [pid for pid in pids if lease_dir.process_start_ticks(pid) is not None]
