"""Processes that start before their lease: a job moves to another device, every step once."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.e2e.local.bench import CLUSTER, TRAIN, uninterrupted
from tests.e2e.local.offload_bench import STEPS, OffloadBench, is_frozen, until_gone
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir, log_file
from fairlead.engines.local.engine import LocalEngine
from fairlead.job import checkpoint
from fairlead.job.saving import memory_file

FORKING = """import subprocess, time
from fairlead import job
run = job.attach()
print(subprocess.Popen(["sleep", "300"], start_new_session=True).pid, flush=True)
time.sleep(300)
"""
POINTS = [one for one in (*failpoints.JOB, *failpoints.KEEPER) if ".prepare." in one]


class MovingBench(OffloadBench):
    """A bench whose job moves between two devices."""

    def __init__(self, root: Path, server: LeaseServer, offload_gib: float = 8.0) -> None:
        super().__init__(root, server, offload_gib)
        (root / "train.py").write_text(f"print('imports', flush=True)\n{TRAIN}")
        self.leases = root / "data/leases"

    def on(self, lease: int, *command: object, **more: Any) -> LaunchOrder:
        """Return the order of a lease; odd and even ones are on different devices."""
        order = self.order(lease, *command, **more)
        return replace(order, devices=(("node", lease % 2),))

    async def prepare(self, order: LaunchOrder) -> list[int]:
        """Prepare for a lease; return keeper and process once that waits."""
        before = self.successors()
        await self.engine.prepare(order)
        (home,) = (path for path in self.successors() if path not in before)
        await eventually(lambda: lease_dir.was_parked(home))
        return self.processes(int(home.name))

    def successors(self) -> list[Path]:
        """Return the directories of successors, also of those that have a lease by now."""
        return [path for path in self.leases.iterdir() if int(path.name) >= 1 << 52]

    async def move(
        self, order: LaunchOrder, then: LaunchOrder, *, after: int, ready: bool = False
    ) -> Ended:
        """Run a lease, and preempt it after another process has begun to prepare for the next.

        With ``ready`` that process waits for its lease by then.
        """
        await self.engine.launch(order)
        await eventually(lambda: any(r["lease"] == order.lease for r in self.server.renewals))
        await (self.prepare(then) if ready else self.engine.prepare(then))
        end = await self.preempt(order, after=after)
        assert checkpoint.fence(order.checkpoint_dir) == order.lease
        return end

    async def until_unprepared(self) -> None:
        await eventually(lambda: not self.engine.prepared_jobs() and not self.successors())


def test_a_job_that_moves_by_hand_over_ends_bit_identical(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> list[Ended]:
        bench, ends, last = MovingBench(tmp_path, server), [], 5
        for lease in range(1, last):
            ends.append(await bench.move(bench.on(lease), bench.on(lease + 1), after=3))
            assert bench.engine.prepared_jobs() == {"j": (("node", (lease + 1) % 2),)}
        await bench.engine.launch(bench.on(last))
        ends.append(await bench.ended())
        await bench.engine.forget([last])
        await eventually(lambda: not os.listdir(bench.leases))
        await bench.engine.close()
        return ends

    ends = asyncio.run(run())
    assert [end.ending for end in ends] == ["left"] * 4 + ["finished"]
    assert [(end.handed_over, end.resumed) for end in ends] == [(n > 0, False) for n in range(5)]
    assert {one["lease"] for one in server.renewals} == set(range(1, 6))
    result = json.loads((tmp_path / "out.0").read_text())
    assert result == {"weight": uninterrupted(STEPS), "steps": list(range(STEPS))}
    logs = [log_file.read(tmp_path / f"logs/{n}.0.log", 0, 99)[1].decode() for n in range(1, 6)]
    assert all(log.startswith("imports\n") for log in logs), logs


def test_a_successor_waits_without_a_lease_and_ends_when_it_is_not_needed(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = MovingBench(tmp_path, server)
        first = await bench.prepare(bench.on(1))
        assert is_frozen(first[1], bench.successors()[0])
        assert not (tmp_path / "j").exists()  # no fence, and no checkpoint
        variables = Path(f"/proc/{first[1]}/environ").read_bytes()
        assert b"FAIRLEAD_JOB_TOKEN" not in variables
        await bench.engine.prepare(bench.on(1))
        assert bench.processes(int(bench.successors()[0].name)) == first
        await bench.engine.prepare(bench.on(2))  # the plan has changed
        await until_gone(first)
        await bench.engine.end_prepared("j")
        await bench.until_unprepared()
        for victim in (0, 1):  # keeper and process die
            pids = await bench.prepare(bench.on(1))
            os.kill(pids[victim], signal.SIGKILL)
            await until_gone(pids)
            await bench.until_unprepared()
        pids = await bench.prepare(bench.on(1))
        end = await bench.preempt(bench.on(2), after=2)  # elsewhere
        assert (end.parked, end.handed_over) == (True, False)
        await until_gone(pids)
        await bench.until_unprepared()
        parked = bench.processes(2)
        await bench.engine.prepare(bench.on(2))  # the parked process can run it
        assert not bench.engine.prepared_jobs()
        pids = await bench.prepare(bench.on(3))
        await bench.engine.close()
        await until_gone([*parked, *pids])
        bench.engine = LocalEngine(tmp_path / "data", CLUSTER, offload_gib=8.0)
        await bench.engine.adopt([])
        await bench.until_unprepared()
        await bench.engine.prepare(bench.on(3))
        await bench.engine.launch(bench.on(3))
        assert (await bench.ended()).handed_over
        await bench.engine.close()

    asyncio.run(run())
    assert json.loads((tmp_path / "out.0").read_text())["steps"] == list(range(STEPS))


def test_processes_that_cannot_wait_are_not_used_and_none_outlives_its_keeper(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = MovingBench(tmp_path, server)
        refused = ({"may_stay": False}, {"container": "image"}, {"secrets": {"A": "a"}})
        for more in refused:
            await bench.engine.prepare(bench.on(1, **more))
            assert not bench.engine.prepared_jobs(), more
        # One that exits before it attaches, or closes its connection, is not waited for.
        hides = (sys.executable, "-c", f"import subprocess; subprocess.run({[*_train(bench)]!r})")
        for lease, command in (1, [sys.executable, "-c", "print(1)"]), (2, hides):
            await bench.engine.prepare(bench.on(lease, *command, total_steps=None))
            await bench.engine.launch(bench.on(lease, *command, total_steps=None))
            end = await bench.ended()
            assert (end.ending, end.handed_over) == ("finished", False), end
        forking = sys.executable, "-c", FORKING
        await bench.engine.prepare(bench.on(3, *forking))
        await bench.engine.launch(bench.on(3, *forking))
        log = tmp_path / "logs/3.0.log"
        await eventually(lambda: log.exists() and log.read_text().strip())
        os.kill(bench.processes(3)[0], signal.SIGKILL)  # its keeper
        assert (await bench.ended()).ending == "lost"
        await until_gone([int(log.read_text())])
        await bench.engine.forget([3])
        small = MovingBench(tmp_path, server, offload_gib=0.001)
        await small.engine.prepare(small.on(4))
        await small.until_unprepared()
        await small.engine.close()
        await bench.engine.close()

    asyncio.run(run())


def test_no_step_is_lost_or_repeated_when_processes_die_while_they_are_handed_a_lease(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))
    resuming = [one for one in failpoints.KEEPER if ".resume." in one]
    # Between two that fail, one becomes ready: after three failures no more would be started.
    points = [one for pair in zip(POINTS, resuming, strict=True) for one in pair]
    assert len(points) == 10

    async def run() -> None:
        bench = MovingBench(tmp_path, server)

        async def run_prepared(lease: int) -> Ended:
            await bench.engine.prepare(bench.on(lease))
            return await bench.preempt(bench.on(lease), after=1)

        await bench.preempt(bench.on(1), after=1)
        # Three leases: to be handed one, and to start again.
        lease = await bench.die_at(points, run_prepared, first=2, tries=3)
        await bench.finish(bench.on(lease))
        bench.check_results()

    asyncio.run(run())


def test_no_step_is_lost_or_repeated_when_processes_die_with_a_file_that_has_no_name_yet(
    server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not memory_file.is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is not a file system in memory")
    points = [one for one in failpoints.JOB if ".spare." in one]
    assert len(points) == 4

    async def run(root: Path) -> None:
        bench = MovingBench(root, server)
        large = 'run.register(model=model, seen=seen, large={"a": bytes(5 << 20)})'
        script = (
            (root / "train.py").read_text().replace("run.register(model=model, seen=seen)", large)
        )
        assert large in script
        (root / "train.py").write_text(script)
        directory = root / "j"
        await bench.preempt(bench.on(1), after=3)
        # Nine leases: a process may leave before it has taken memory.
        lease = await bench.die_at(
            points, lambda n: bench.preempt(bench.on(n), after=4), first=2, tries=9
        )
        await bench.finish(bench.on(lease))
        committed = checkpoint.latest(str(directory))
        assert committed is not None
        assert {*os.listdir(directory)} == {"fence", "lock", "latest.json", *committed.files}
        bench.check_results()

    with TemporaryDirectory(dir="/dev/shm") as name:
        monkeypatch.setenv(failpoints.VARIABLE, f"{name}/crashes")
        asyncio.run(run(Path(name)))


def _train(bench: MovingBench) -> tuple[str, ...]:
    return bench.order(0, total_steps=None).command
