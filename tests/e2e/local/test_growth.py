"""Gangs that grow: the new ranks start while the others train, and every step is made once."""

import asyncio
import os
import re
import signal
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.e2e.local.offload_bench import alive, until_gone
from tests.e2e.local.test_parked_gangs import ELASTIC, GangBench
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually, until

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import log_file
from fairlead.engines.keeper.orphans import descendants

GROWN = "fairlead: the gang grows by processes started before: 1\n"
PACED = f"print('imports', flush=True)\n{ELASTIC}".replace(
    "time.sleep(float(sys.argv[3]))",
    """while os.path.exists("slow") and i > 10 * (time.time() - os.path.getmtime("train.py")):
        time.sleep(0.01)""",
)
"""makes ten steps a second while a file exists, so that it trains for as long as a test takes"""
POINTS = (
    *(one for one in failpoints.KEEPER if ".growth." in one),
    *("job.prepare.ready", "job.prepare.resumed"),
)


class GrowingBench(GangBench):
    """A bench whose gang can be prepared for its next lease."""

    steps = 10_000

    def __init__(self, root: Path, server: Any, offload_gib: float = 8.0) -> None:
        super().__init__(root, server, offload_gib)
        (root / "train.py").write_text(PACED)
        self._slow = root / "slow"

    def pace(self) -> None:
        """Slow the gang down, so that it trains until `finish`."""
        self._slow.touch()

    async def begin(self, order: LaunchOrder) -> None:
        """Launch a lease, and wait until all of its gang trains."""
        self.server.world_size = len(order.devices)
        self.pace()
        await self.engine.launch(order)
        first = self.saved_steps(order)

        def ranks() -> set[int]:
            made = (one for one in self.server.renewals if one["lease"] == order.lease)
            return {one["rank"] for one in made if one["steps"] > first}

        await eventually(lambda: len(ranks()) == len(order.devices))

    async def newcomers(self, order: LaunchOrder, larger: LaunchOrder) -> list[int]:
        """Prepare a gang for a larger lease; return its new processes once they wait."""
        members = self.processes(order.lease)
        await self.engine.prepare(larger)
        assert self.engine.is_growing(order.lease)
        await eventually(lambda: not self.engine.is_growing(order.lease))
        assert self.engine.prepared_jobs() == {"j": larger.devices[len(order.devices) :]}
        return sorted({*descendants(members[0])} - {*members})

    async def finish(self, order: LaunchOrder) -> Ended:
        self._slow.unlink()
        return await super().finish(order)

    async def until_unprepared(self) -> None:
        await eventually(lambda: not self.engine.prepared_jobs())


def test_new_ranks_start_while_the_others_train_and_join_them(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GrowingBench(tmp_path, server)
        for lease in (1, 3):  # it grows from one rank to two, shrinks, and grows again
            order, larger = bench.order(lease, gang=1), bench.order(lease + 1)
            await bench.begin(order)
            (new,) = await bench.newcomers(order, larger)
            await bench.engine.prepare(larger)
            assert alive([new])  # a plan that says the same starts no other process
            assert b"FAIRLEAD_JOB_TOKEN" not in Path(f"/proc/{new}/environ").read_bytes()
            made = server.renewals[-1]["steps"]
            await eventually(lambda: server.renewals[-1]["steps"] > made)  # noqa: B023
            end = await bench.preempt(order, after=1)
            assert (end.parked, end.resumed) == (True, lease > 1)
            await bench.begin(larger)
            assert bench.processes(larger.lease)[2] == new
            assert not bench.engine.prepared_jobs()
            assert GROWN in _log(tmp_path, larger.lease, 0)
            assert _log(tmp_path, larger.lease, 1).startswith("imports\n")
            assert re.search(rf"^process {new} 1 2$", _log(tmp_path, larger.lease, 1), re.M)
            assert (await bench.preempt(larger, after=1)).parked
        assert (await bench.finish(bench.order(5))).resumed
        bench.check_results(2)

    asyncio.run(run())


def test_a_gang_grows_without_its_new_ranks_if_they_die_or_the_plan_changes(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GrowingBench(tmp_path, server)
        order, larger = bench.order(1, gang=1), bench.order(2)
        await bench.begin(order)
        pids = await bench.newcomers(order, larger)
        os.kill(pids[0], signal.SIGKILL)
        await bench.until_unprepared()
        pids = await bench.newcomers(order, larger)
        await bench.engine.end_prepared("j")
        await until_gone(pids)
        assert alive(bench.processes(1)) == bench.processes(1)
        pids = await bench.newcomers(order, bench.order(0, gang=3))
        pids += await bench.newcomers(order, larger)  # the plan has changed: one new rank
        assert len(pids) == 3
        await until_gone(pids[:2])
        moved = replace(order, devices=(("node", 3),))
        await bench.engine.prepare(moved)  # it moves instead
        await until_gone(pids)
        assert bench.engine.prepared_jobs() == {"j": moved.devices}
        await bench.engine.end_prepared("j")
        pids += await bench.newcomers(order, larger)
        os.kill(pids[3], signal.SIGKILL)
        assert (await bench.preempt(order, after=1)).parked
        end = await bench.preempt(larger, after=1)  # with a process that is started now
        assert (end.parked, end.resumed) == (True, True)
        assert GROWN not in _log(tmp_path, 2, 0)
        for lease in (3, 5):
            await bench.begin(bench.order(lease))
            pids = await bench.newcomers(bench.order(lease), bench.order(0, gang=3))
            assert (await bench.preempt(bench.order(lease), after=1)).parked
            if lease == 5:  # the plan changes while the gang is parked
                await bench.engine.end_prepared("j")
                await until_gone(pids)
            end = await bench.preempt(bench.order(lease + 1), after=1)  # it does not grow
            assert (end.parked, end.resumed) == (True, True)
            await until_gone(pids)
        await bench.finish(bench.order(7))
        bench.check_results(2)

    asyncio.run(run())


def test_new_ranks_end_with_their_gang_a_server_that_ends_and_memory_that_is_short(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GrowingBench(tmp_path, server)
        order, larger = bench.order(1, gang=1), bench.order(0)
        await bench.begin(order)
        for more in ({"container": "image"}, {"command": ("true",)}):
            await bench.engine.prepare(replace(larger, **more))
            assert not bench.engine.prepared_jobs(), more
        pids = await bench.newcomers(order, larger)
        os.kill(bench.processes(1)[1], signal.SIGKILL)  # the rank that trains
        assert (await bench.ended()).ending == "failed"
        await until_gone(pids)
        assert not bench.engine.prepared_jobs()
        await bench.engine.forget([1])
        order = bench.order(2, gang=1)
        await bench.begin(order)
        pids = await bench.newcomers(order, larger)
        await bench.engine.close()
        await until_gone(pids)
        assert alive(bench.processes(2)) == bench.processes(2)
        processes = bench.processes(2)
        os.kill(processes[0], signal.SIGKILL)
        await until_gone(processes)
        small = GrowingBench(tmp_path, server, offload_gib=0.001)
        await small.engine.adopt([])
        order = small.order(3, gang=1)
        await small.begin(order)
        await small.engine.prepare(larger)
        await small.until_unprepared()
        await small.finish(order)

    asyncio.run(run())


def test_new_ranks_end_with_a_server_that_dies_and_the_others_train_on(
    tmp_path: Path, server: LeaseServer
) -> None:
    processes = get_context("spawn")
    ours, theirs = processes.Pipe()
    engine = processes.Process(target=_start_gang, args=(tmp_path, server.url, theirs))
    engine.start()
    until(lambda: any(one["steps"] > 0 for one in server.renewals))
    ours.send("it trains")
    members, newcomers = ours.recv()
    engine.kill()
    engine.join()
    until(lambda: not alive(newcomers))
    made = server.renewals[-1]["steps"]
    until(lambda: server.renewals[-1]["steps"] > made)
    assert alive(members) == members
    os.kill(members[0], signal.SIGKILL)
    until(lambda: not alive(members))


def _start_gang(root: Path, url: str, test: Connection) -> None:
    """Launch a gang and its newcomers, name their processes, and wait to be killed."""

    async def run() -> None:
        bench = GrowingBench(root, SimpleNamespace(url=url))
        bench.pace()
        order = bench.order(1, gang=1)
        await bench.engine.launch(order)
        await asyncio.to_thread(test.recv)
        newcomers = await bench.newcomers(order, bench.order(2))
        test.send((bench.processes(1), newcomers))
        await asyncio.Event().wait()

    asyncio.run(run())


def test_no_step_is_lost_or_repeated_when_a_process_dies_while_its_gang_grows(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))

    async def run() -> None:
        bench = GrowingBench(tmp_path, server)

        def order(lease: int) -> LaunchOrder:
            return bench.order(lease, gang=2 - lease % 2, grace_s=2.0)

        async def run_resized(lease: int) -> Ended:
            if lease % 2:  # a gang of one, at which no point is
                await bench.begin(order(lease))
                await bench.engine.prepare(order(lease + 1))
                await eventually(lambda: not bench.engine.is_growing(lease))
            return await bench.preempt(order(lease), after=1)

        lease = await bench.die_at(POINTS, run_resized, first=1, tries=4)
        await bench.finish(bench.order(lease))
        bench.check_results(2)

    asyncio.run(run())


def _log(root: Path, lease: int, rank: int) -> str:
    return log_file.read(root / f"logs/{lease}.{rank}.log", 0, 1000)[1].decode()
