"""The local engine and the job library with real processes: train, leave, come back, finish."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.lease_server import LeaseServer

from fairlead.engines.base import Ended, Order, Progressed, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.job import checkpoint
from fairlead.model.cluster import Cluster

TRAIN = """
import json, os, sys, time
from fairlead import job

class Model:
    def __init__(self): self.weight = 1.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]

run, model, seen = job.attach(), Model(), {"steps": []}
run.register(model=model, seen=seen)
for i in run.steps(range(int(sys.argv[1]))):
    model.weight = (model.weight * 1.000123 + i) % 97.0
    seen["steps"].append(i)
    run.report(weight=model.weight)
    time.sleep(float(sys.argv[3]))
    if run.rank == 0 and len(sys.argv) > 4 and i == int(sys.argv[4]): os._exit(3)
with open(f"{sys.argv[2]}.{run.rank}", "w") as file:
    json.dump({"weight": model.weight, **seen}, file)
"""
CLUSTER = Cluster.of({"v100": 4})


class Bench:
    """One job's directories, and the engine under test."""

    def __init__(self, root: Path, server: LeaseServer) -> None:
        self.root, self.server = root, server
        (root / "train.py").write_text(TRAIN)
        self.engine = LocalEngine(root / "data", CLUSTER)
        self.reports: asyncio.Queue[Any] = asyncio.Queue()

    def order(
        self, lease: int, *command: object, gang: int = 1, job: str = "j", **more: Any
    ) -> Order:
        default = (sys.executable, self.root / "train.py", 40, self.root / "out", 0.02)
        settings: dict[str, Any] = {
            "environment": {
                "FAIRLEAD_URL": self.server.url,
                "FAIRLEAD_JOB_TOKEN": "secret",
                "FAIRLEAD_LEASE_S": "30",
            },
            "total_steps": 40,
            "grace_s": 10.0,
            **more,
        }
        return Order(
            lease=lease,
            job=job,
            command=tuple(map(str, command or default)),
            directory=str(self.root),
            devices=tuple(("node", i) for i in range(gang)),
            accelerators=("v100",) * gang,
            checkpoint_dir=str(self.root / job),
            log_dir=str(self.root / "logs"),
            **settings,
        )

    async def ended(self, timeout_s: float = 30.0) -> Ended:
        async def wait() -> Ended:
            async for report in self.engine.reports():
                if isinstance(report, Ended):
                    return report
            raise AssertionError

        return await asyncio.wait_for(wait(), timeout_s)

    async def train(self, *orders: Order) -> list[Ended]:
        found = []
        for order in orders:
            await self.engine.launch(order)
            found.append(await self.ended())
        return found

    def result(self, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / f"out.{rank}").read_text())
        return found


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    made = LeaseServer()
    yield made
    made.close()


@pytest.fixture
def bench(tmp_path: Path, server: LeaseServer) -> Bench:
    async def make() -> Bench:
        return Bench(tmp_path, server)

    return asyncio.run(make())


def uninterrupted(steps: int) -> float:
    weight = 1.0
    for i in range(steps):
        weight = (weight * 1.000123 + i) % 97.0
    return weight


async def until(condition: Any, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        await asyncio.sleep(0.01)


def test_a_job_that_leaves_twice_makes_every_step_once(bench: Bench, server: LeaseServer) -> None:
    server.leave_from = {1: 5, 2: 15}
    first, second, third = asyncio.run(bench.train(*(bench.order(n) for n in (1, 2, 3))))
    assert [end.ending for end in (first, second, third)] == ["left", "left", "finished"]
    assert first.steps is not None
    assert second.steps is not None
    assert 5 <= first.steps < second.steps < 40
    assert third.steps == 40
    assert bench.result()["steps"] == list(range(40))
    assert bench.result()["weight"] == uninterrupted(40)


def test_members_of_a_gang_leave_after_the_same_step(bench: Bench, server: LeaseServer) -> None:
    server.world_size = 3
    server.leave_from = {1: 8}
    first, second = asyncio.run(bench.train(bench.order(1, gang=3), bench.order(2, gang=3)))
    assert (first.ending, second.ending) == ("left", "finished")
    assert first.exit_codes == (85, 85, 85)
    for rank in range(3):
        assert bench.result(rank)["steps"] == list(range(40))


def test_a_job_goes_on_without_the_server_and_leaves_when_its_lease_is_over(
    bench: Bench, server: LeaseServer
) -> None:
    server.close()
    order = bench.order(1, environment={**bench.order(1).environment, "FAIRLEAD_LEASE_S": "0.15"})
    (end,) = asyncio.run(bench.train(order))
    assert end.ending == "left"
    assert end.steps is not None
    assert 0 < end.steps < 40


@pytest.mark.parametrize("deaf_to", [{0, 1, 2}, {1}])
def test_a_gang_that_cannot_ask_the_server_leaves_after_the_same_step(
    bench: Bench, server: LeaseServer, deaf_to: set[int]
) -> None:
    server.deaf_to = deaf_to
    environment = {**bench.order(1).environment, "FAIRLEAD_LEASE_S": "1"}
    train = sys.executable, bench.root / "train.py", 4000, bench.root / "out", 0.01
    order = bench.order(1, *train, gang=3, total_steps=4000, environment=environment)
    (end,) = asyncio.run(bench.train(order))
    assert (end.ending, end.exit_codes) == ("left", (85, 85, 85))
    found = checkpoint.latest(str(bench.root / "j"))
    assert found is not None
    assert found.steps == end.steps
    assert 0 < found.steps < 4000


def test_a_shell_around_a_job_neither_hides_how_it_left_nor_cuts_it_off(
    bench: Bench, server: LeaseServer
) -> None:
    slow = bench.root / "slow.py"
    slow.write_text(TRAIN.replace("return {", "time.sleep(1.0); return {", 1))
    command = f"{sys.executable} {slow} 40 {bench.root}/out 0.02; echo end"

    async def scene() -> list[Ended]:
        await bench.engine.launch(bench.order(1, "bash", "-c", command))
        await until(lambda: any(told["steps"] >= 3 for told in server.renewals))
        server.leave_from = {1: 0, 2: 20}
        await bench.engine.stop(1)  # the shell dies of it at once
        stopped = await bench.ended()
        return [
            stopped,
            *await bench.train(*(bench.order(n, "bash", "-c", command) for n in (2, 3))),
        ]

    stopped, left, finished = asyncio.run(scene())
    assert [end.ending for end in (stopped, left, finished)] == ["left", "left", "finished"]
    assert stopped.steps is not None
    assert stopped.steps >= 3
    assert bench.result()["steps"] == list(range(40))


def test_a_lease_that_is_over_writes_nothing(bench: Bench, server: LeaseServer) -> None:
    server.over = {1}
    (end,) = asyncio.run(bench.train(bench.order(1)))
    assert (end.ending, end.exit_codes, end.steps) == ("refused", (86,), None)


def test_a_member_that_crashes_ends_the_gang_and_keeps_the_checkpoint(
    bench: Bench, server: LeaseServer
) -> None:
    server.world_size = 2
    server.leave_from = {1: 5}
    crash = (sys.executable, bench.root / "train.py", 40, bench.root / "out", 0.005, 30)
    first, second = asyncio.run(
        bench.train(bench.order(1, gang=2), bench.order(2, *crash, gang=2, grace_s=2.0))
    )
    assert second.ending == "failed"
    assert "exited with 3" in second.message
    assert second.steps == first.steps


def test_a_killed_keeper_takes_its_members_along(bench: Bench) -> None:
    async def scene() -> Ended:
        await bench.engine.launch(bench.order(1, "sleep", 60))
        path = bench.root / "data/leases/1/members.json"
        await until(path.exists)
        members = json.loads(path.read_text())
        os.kill(members["keeper"], signal.SIGKILL)
        end = await bench.ended()
        await until(lambda: not any(_alive(pid) for pid in members["members"]))
        return end

    assert asyncio.run(scene()).ending == "lost"


def test_a_killed_keeper_takes_what_its_members_have_started_along(bench: Bench) -> None:
    """A lease is not over while a process that it has started may still use a device."""
    script = "sleep 300 & echo $! > child; wait"

    async def scene() -> Ended:
        await bench.engine.launch(bench.order(1, "bash", "-c", script))
        path = bench.root / "data/leases/1/members.json"
        await until(path.exists)
        await until(lambda: (bench.root / "child").exists() and (bench.root / "child").read_text())
        child = int((bench.root / "child").read_text())
        os.kill(json.loads(path.read_text())["keeper"], signal.SIGKILL)
        end = await bench.ended()
        assert not _alive(child)
        return end

    assert asyncio.run(scene()).ending == "lost"


def test_a_shell_job_is_told_killed_and_its_progress_read(bench: Bench) -> None:
    script = (
        "trap 'echo bye > saved; exit 0' TERM;"
        " for i in 1 2 3; do echo step $i; done; sleep 60 & wait"
    )
    deaf = "trap '' TERM; echo ready; sleep 60"

    async def scene() -> tuple[Ended, Ended, float]:
        order = bench.order(1, "bash", "-c", script, progress_pattern=r"step (\d+)", total_steps=9)
        await bench.engine.launch(order)
        steps = 0.0
        async for report in bench.engine.reports():
            if isinstance(report, Progressed):
                steps = report.steps
                break
        await bench.engine.stop(1)
        polite = await bench.ended()
        await bench.engine.launch(bench.order(2, "bash", "-c", deaf, grace_s=0.5))
        await until((bench.root / "logs/2.0.log").exists)
        await until(lambda: "ready" in (bench.root / "logs/2.0.log").read_text())
        await bench.engine.stop(2)
        return polite, await bench.ended(), steps

    polite, deaf_end, steps = asyncio.run(scene())
    assert steps == 3
    assert (polite.ending, polite.steps) == ("left", 3)
    assert (bench.root / "saved").read_text() == "bye\n"
    assert (deaf_end.ending, deaf_end.exit_codes) == ("left", (-9,))


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ({"time_limit_s": 0.3}, "import time; time.sleep(60)"),
        ({"memory_gib": 0.05}, "x = bytearray(200 << 20); import time; time.sleep(60)"),
    ],
)
def test_limits_end_a_job_and_say_why(bench: Bench, limit: dict[str, Any], command: str) -> None:
    order = bench.order(1, sys.executable, "-c", command, grace_s=1.0, **limit)
    (end,) = asyncio.run(bench.train(order))
    assert end.ending == "failed"
    assert "limit" in end.message


def test_a_new_engine_adopts_what_runs_and_stops_strangers(bench: Bench) -> None:
    strangers = bench.root / "data/leases/2"

    async def first() -> list[int]:
        for lease, for_s in ((1, "1.5"), (2, "60")):
            await bench.engine.launch(bench.order(lease, "sleep", for_s, job=f"j{lease}"))
        for lease in (1, 2):
            await until((bench.root / f"data/leases/{lease}/members.json").exists)
        await bench.engine.close()
        found = lease_dir.read_json(strangers / "members.json")
        assert found is not None
        return [found["keeper"], *found["members"]]

    async def second() -> list[Ended]:
        bench.engine = LocalEngine(bench.root / "data", CLUSTER)
        await bench.engine.adopt({1, 7})
        never = await bench.ended()
        assert await bench.engine.running() == {1}
        adopted = await bench.ended()
        await until(lambda: not strangers.exists())
        return [never, adopted]

    stopped = asyncio.run(first())
    never, adopted = asyncio.run(second())
    assert (never.lease, never.ending) == (7, "lost")
    assert (adopted.lease, adopted.ending) == (1, "finished")
    assert [lease_dir.started(pid) for pid in stopped] == [None, None]


def test_a_new_engine_hears_how_far_an_adopted_job_without_the_library_is(bench: Bench) -> None:
    code = "for i in 1 2 3; do echo step $i; sleep 1; done"

    async def first() -> None:
        order = bench.order(1, "bash", "-c", code, progress_pattern=r"step (\d+)")
        await bench.engine.launch(order)
        await until((bench.root / "data/leases/1/members.json").exists)
        await bench.engine.close()

    async def second() -> list[Report]:
        bench.engine = LocalEngine(bench.root / "data", CLUSTER)
        await bench.engine.adopt({1})
        found: list[Report] = []
        async for report in bench.engine.reports():
            found.append(report)
            if isinstance(report, Ended):
                break
        return found

    asyncio.run(first())
    *before, ended = asyncio.run(second())
    assert Progressed(1, 2.0) in before
    assert isinstance(ended, Ended)
    assert (ended.ending, ended.steps) == ("finished", 3.0)


def test_a_lease_is_never_run_twice(bench: Bench) -> None:
    async def scene() -> Ended:
        await bench.engine.launch(bench.order(1, "bash", "-c", "echo run >> times"))
        end = await bench.ended()
        await bench.engine.launch(bench.order(1, "bash", "-c", "echo run >> times"))
        again = await bench.ended()
        assert again == end
        return end

    assert asyncio.run(scene()).ending == "finished"
    assert (bench.root / "times").read_text() == "run\n"


def test_a_job_does_not_see_the_servers_settings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_DATABASE", "postgresql://fairlead:secret@host/db")
    order = bench.order(1, "bash", "-c", "env > seen")
    asyncio.run(bench.train(order))
    seen = (bench.root / "seen").read_text()
    assert "FAIRLEAD_LEASE=1" in seen
    assert "postgresql" not in seen


def test_a_launch_behind_the_fence_starts_nothing(bench: Bench) -> None:
    checkpoint.raise_fence(str(bench.root / "j"), 9)
    (end,) = asyncio.run(bench.train(bench.order(3, "touch", bench.root / "ran")))
    assert end.ending == "refused"
    assert not (bench.root / "ran").exists()


def test_outside_the_scheduler_a_script_runs_as_if_nothing_were_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = os.spawnle(
        os.P_WAIT,
        sys.executable,
        sys.executable,
        str(tmp_path / "train.py"),
        "12",
        str(tmp_path / "out"),
        "0",
        {"PATH": os.environ["PATH"]},
    )
    assert done == 0
    assert json.loads((tmp_path / "out.0").read_text())["weight"] == uninterrupted(12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.0", "train.py"]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
