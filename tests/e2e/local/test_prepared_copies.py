"""Processes that start before the leases of a job's copies: each takes its part with its lease."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.local.bench import TRAIN
from tests.e2e.local.offload_bench import STEPS, OffloadBench, until_gone
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.job import checkpoint
from fairlead.job.copies.merging import merge_copies
from fairlead.job.copies.part import CopyPart

DEVICES = ("node", 0), ("node", 1)


class CopiesBench(OffloadBench):
    """A bench whose job runs in two copies, one on each device."""

    def __init__(self, root: Path, server: LeaseServer) -> None:
        super().__init__(root, server)
        (root / "train.py").write_text(TRAIN)
        self.leases, self.copies = root / "data/leases", root / "copies"

    def on(self, device: int, lease: int = 0) -> LaunchOrder:
        """Return the order of the job itself on a device."""
        return replace(self.order(lease, forks=True), devices=DEVICES[device : device + 1])

    def copy_on(self, device: int, lease: int, steps: int) -> LaunchOrder:
        """Return the order of a copy that trains on every other item."""
        order = self.on(device, lease)
        items = (0.0, 0.5) if device == 0 else (0.5, 1.0)
        part = CopyPart(device + 1, steps, items, order.checkpoint_dir)
        return replace(
            order,
            checkpoint_dir=str(self.copies / str(lease)),
            environment={**order.environment, **part.environment()},
        )

    async def prepare(self) -> dict[int, list[int]]:
        """Prepare for leases on both devices; return device → keeper and process that waits."""
        await self.engine.prepare(*map(self.on, (0, 1)))
        waiting = {}
        for home in self.successors():
            await eventually(partial(lease_dir.was_parked, home))
            (device,) = lease_dir.read_order(home).devices
            waiting[DEVICES.index(device)] = self.processes(int(home.name))
        return waiting

    def successors(self) -> list[Path]:
        """Return the directories of processes that began without a lease."""
        return [path for path in self.leases.iterdir() if int(path.name) >= 1 << 52]

    async def run(self, *orders: LaunchOrder) -> dict[int, Ended]:
        """Run leases at the same time; return lease → end."""
        await asyncio.gather(*map(self.engine.launch, orders))
        ends = [await self.ended() for _ in orders]
        await self.engine.forget([end.lease for end in ends])
        return {end.lease: end for end in ends}


def test_copies_and_the_last_lease_take_processes_that_were_prepared(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = CopiesBench(tmp_path, server)
        waiting = await bench.prepare()
        assert bench.engine.prepared_jobs() == {"j": DEVICES}
        await bench.prepare()  # they are there
        assert len(bench.successors()) == 2
        ends = await bench.run(bench.copy_on(0, 1, 60), bench.copy_on(1, 2, 50))
        for lease, steps in (1, 60), (2, 50):
            end = ends[lease]
            assert (end.ending, end.steps, end.handed_over) == ("left", steps, True), end
        await until_gone([pid for pids in waiting.values() for pid in pids])
        base = bench.on(0).checkpoint_dir
        assert merge_copies(base, str(bench.copies), ()) == 110
        waiting = await bench.prepare()
        (end,) = (await bench.run(bench.on(1, 3))).values()
        assert (end.ending, end.steps, end.handed_over) == ("finished", STEPS, True)
        assert bench.result()["steps"][-1] == STEPS - 1
        await eventually(lambda: not bench.engine.prepared_jobs() and not bench.successors())
        await until_gone(waiting[0])  # the one on the other device is not needed
        await bench.engine.close()

    asyncio.run(run())


def test_a_copy_that_is_preempted_exits_without_a_reason_and_another_order_ends_what_waits(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = CopiesBench(tmp_path, server)
        first = await bench.prepare()
        order = bench.copy_on(0, 1, 1000)
        end = await bench.preempt(order, after=20)
        assert (end.ending, end.parked, end.handed_over) == ("left", False, True)
        assert (end.message, end.switch) == ("", "")
        assert end.steps is not None
        assert end.steps == checkpoint.saved_steps(order.checkpoint_dir)
        assert end.steps >= 20
        assert not bench.engine.parked_jobs()
        assert bench.engine.prepared_jobs() == {"j": DEVICES[1:]}  # for the other copy
        changed = replace(bench.on(1), command=("sleep", "60"))
        await bench.engine.prepare(bench.on(0), changed)
        await until_gone(first[1])
        assert {*bench.engine.prepared_jobs()["j"]} == {*DEVICES}
        await bench.engine.end_prepared("j")
        await eventually(lambda: not bench.successors())
        await bench.engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("point", ["job.prepare.resumed", "keeper.resume.known"])
def test_a_copy_whose_process_dies_as_it_takes_its_lease_loses_no_step_of_others(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))

    async def run() -> None:
        bench = CopiesBench(tmp_path, server)
        await bench.prepare()
        (bench.crashes / point).touch()
        ends = await bench.run(bench.copy_on(0, 1, 60), bench.copy_on(1, 2, 60))
        assert not (bench.crashes / point).exists()
        assert sorted((end.ending == "left", end.steps or 0) for end in ends.values()) == [
            (False, 0),
            (True, 60),
        ]
        assert merge_copies(bench.on(0).checkpoint_dir, str(bench.copies), ()) == 60
        await eventually(lambda: not bench.successors())
        await bench.engine.close()

    asyncio.run(run())
