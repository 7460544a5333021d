"""The local engine and the job library with real processes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local.bench import CLUSTER, TRAIN, Bench, uninterrupted
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead.engines.base import Ended, LaunchOrder, Progressed, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.job import checkpoint

STEPS = 4000


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


def leaving(bench: Bench, lease: int, **more: Any) -> LaunchOrder:
    """Return the order of a training that must leave under its first two leases.

    Its steps take so long that it cannot finish before, and no time under its last lease.
    """
    command = bench.training(STEPS, 0.01 if lease < 3 else 0.0)
    return bench.order(lease, *command, total_steps=STEPS, **more)


def test_a_job_that_leaves_twice_makes_every_step_once(bench: Bench, server: LeaseServer) -> None:
    async def scene() -> list[Ended]:
        server.leave_from = {1: 5}
        ends = await bench.train(leaving(bench, 1))
        server.leave_from[2] = int(ends[0].steps or 0) + 5
        return [*ends, *await bench.train(leaving(bench, 2), leaving(bench, 3))]

    first, second, third = asyncio.run(scene())
    assert [end.ending for end in (first, second, third)] == ["left", "left", "finished"]
    assert first.steps is not None
    assert second.steps is not None
    assert 5 <= first.steps < second.steps < STEPS
    assert third.steps == STEPS
    assert bench.result()["steps"] == list(range(STEPS))
    assert bench.result()["weight"] == uninterrupted(STEPS)


def test_members_of_a_gang_leave_after_the_same_step(bench: Bench, server: LeaseServer) -> None:
    server.world_size = 3
    server.leave_from = {1: 8}
    orders = leaving(bench, 1, gang=3), leaving(bench, 3, gang=3)
    first, second = asyncio.run(bench.train(*orders))
    assert (first.ending, second.ending) == ("left", "finished")
    assert first.exit_codes == (85, 85, 85)
    for rank in range(3):
        assert bench.result(rank)["steps"] == list(range(STEPS))


def test_a_job_runs_without_the_server_until_its_lease_expires(
    bench: Bench, server: LeaseServer
) -> None:
    server.close()
    environment = {**bench.order(1).environment, "FAIRLEAD_LEASE_S": "2"}
    (end,) = asyncio.run(bench.train(leaving(bench, 1, environment=environment)))
    assert end.ending == "left"
    assert end.steps is not None
    assert 0 < end.steps < STEPS


@pytest.mark.parametrize("unreachable_for", [{0, 1, 2}, {1}])
def test_a_gang_leaves_after_the_same_step_if_the_server_is_unreachable(
    bench: Bench, server: LeaseServer, unreachable_for: set[int]
) -> None:
    server.unreachable_for = unreachable_for
    environment = {**bench.order(1).environment, "FAIRLEAD_LEASE_S": "2"}
    (end,) = asyncio.run(bench.train(leaving(bench, 1, gang=3, environment=environment)))
    assert (end.ending, end.exit_codes) == ("left", (85, 85, 85))
    committed = checkpoint.latest(str(bench.root / "j"))
    assert committed is not None
    assert committed.steps == end.steps
    assert 0 < committed.steps < STEPS


def test_a_shell_around_a_job_neither_hides_its_status_nor_cuts_it_off(
    bench: Bench, server: LeaseServer
) -> None:
    slow = bench.root / "slow.py"
    slow.write_text(TRAIN.replace("return {", "time.sleep(1.0); return {", 1))

    def order(lease: int) -> LaunchOrder:
        step_s = 0.01 if lease < 3 else 0.0
        command = f"{sys.executable} {slow} {STEPS} {bench.root}/out {step_s}; echo end"
        return bench.order(lease, "bash", "-c", command, total_steps=STEPS)

    async def scene() -> list[Ended]:
        await bench.engine.launch(order(1))
        await eventually(lambda: any(renewal["steps"] >= 3 for renewal in server.renewals))
        server.leave_from = {1: 0, 2: 20}
        await bench.engine.stop(1)  # the signal kills the shell at once
        stopped = await bench.ended()
        return [stopped, *await bench.train(order(2), order(3))]

    stopped, left, finished = asyncio.run(scene())
    assert [end.ending for end in (stopped, left, finished)] == ["left", "left", "finished"]
    assert stopped.steps is not None
    assert stopped.steps >= 3
    assert bench.result()["steps"] == list(range(STEPS))


def test_a_lease_that_has_ended_writes_nothing(bench: Bench, server: LeaseServer) -> None:
    server.ended = {1}
    (end,) = asyncio.run(bench.train(bench.order(1)))
    assert (end.ending, end.exit_codes, end.steps) == ("refused", (86,), None)


def test_a_member_that_crashes_ends_the_gang_and_keeps_the_checkpoint(
    bench: Bench, server: LeaseServer
) -> None:
    server.world_size = 2
    server.leave_from = {1: 5}
    crash = bench.training(STEPS, 0.001, 1000)
    first, second = asyncio.run(
        bench.train(
            leaving(bench, 1, gang=2),
            bench.order(2, *crash, gang=2, grace_s=2.0, total_steps=STEPS),
        )
    )
    assert second.ending == "failed"
    assert "exited with 3" in second.message
    assert second.steps == first.steps


def test_members_die_with_their_keeper(bench: Bench) -> None:
    async def scene() -> Ended:
        await bench.engine.launch(bench.order(1, "sleep", 60))
        path = bench.root / "data/leases/1/members.json"
        await eventually(path.exists)
        members = json.loads(path.read_text())
        os.kill(members["keeper"], signal.SIGKILL)
        end = await bench.ended()
        await eventually(lambda: not any(_alive(pid) for pid in members["members"]))
        return end

    assert asyncio.run(scene()).ending == "lost"


def test_descendants_of_members_die_with_the_keeper(bench: Bench) -> None:
    """A lease has not ended while one of its processes may still use a device."""
    script = "sleep 300 & echo $! > child; wait"

    async def scene() -> Ended:
        await bench.engine.launch(bench.order(1, "bash", "-c", script))
        path = bench.root / "data/leases/1/members.json"
        await eventually(path.exists)
        await eventually(
            lambda: (bench.root / "child").exists() and (bench.root / "child").read_text()
        )
        child = int((bench.root / "child").read_text())
        os.kill(json.loads(path.read_text())["keeper"], signal.SIGKILL)
        end = await bench.ended()
        assert not _alive(child)
        return end

    assert asyncio.run(scene()).ending == "lost"


def test_a_shell_job_is_stopped_or_killed_and_its_progress_read(bench: Bench) -> None:
    script = (
        "trap 'echo bye > saved; exit 0' TERM;"
        " for i in 1 2 3; do echo step $i; done; sleep 60 & wait"
    )
    deaf = "trap '' TERM; echo ready; sleep 60"

    async def scene() -> tuple[Ended, Ended]:
        order = bench.order(1, "bash", "-c", script, progress_pattern=r"step (\d+)", total_steps=9)
        await bench.engine.launch(order)
        async for report in bench.engine.reports():
            if report == Progressed(1, 3.0):
                break
        await bench.engine.stop(1)
        polite = await bench.ended()
        await bench.engine.launch(bench.order(2, "bash", "-c", deaf, grace_s=0.5))
        await eventually((bench.root / "logs/2.0.log").exists)
        await eventually(lambda: "ready" in (bench.root / "logs/2.0.log").read_text())
        await bench.engine.stop(2)
        return polite, await bench.ended()

    polite, deaf_end = asyncio.run(scene())
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
def test_limits_end_a_job_with_a_message(
    bench: Bench, limit: dict[str, Any], command: str
) -> None:
    order = bench.order(1, sys.executable, "-c", command, grace_s=1.0, **limit)
    (end,) = asyncio.run(bench.train(order))
    assert end.ending == "failed"
    assert "limit" in end.message


def test_a_new_engine_adopts_running_leases_and_stops_orphans(bench: Bench) -> None:
    orphan = bench.root / "data/leases/2"

    async def first() -> list[int]:
        until_file = "until test -e end; do sleep 0.05; done"
        for lease, command in ((1, until_file), (2, "exec sleep 600")):
            order = bench.order(lease, "bash", "-c", command, job=f"j{lease}")
            await bench.engine.launch(order)
        for lease in (1, 2):
            await eventually((bench.root / f"data/leases/{lease}/members.json").exists)
        await bench.engine.close()
        members = lease_dir.read_json(orphan / "members.json")
        assert members is not None
        return [members["keeper"], *members["members"]]

    async def second() -> list[Ended]:
        bench.engine = LocalEngine(bench.root / "data", CLUSTER)
        await bench.engine.adopt({1, 7})
        never = await bench.ended()
        assert await bench.engine.running() == {1}
        (bench.root / "end").touch()
        adopted = await bench.ended()
        await eventually(lambda: not orphan.exists())
        return [never, adopted]

    stopped = asyncio.run(first())
    never, adopted = asyncio.run(second())
    assert (never.lease, never.ending) == (7, "lost")
    assert (adopted.lease, adopted.ending) == (1, "finished")
    assert [lease_dir.process_start_ticks(pid) for pid in stopped] == [None, None]


def test_a_new_engine_reports_progress_of_an_adopted_job_without_the_library(bench: Bench) -> None:
    code = "for i in 1 2 3; do echo step $i; until test -e $i; do sleep 0.05; done; done"

    async def first() -> None:
        order = bench.order(1, "bash", "-c", code, progress_pattern=r"step (\d+)")
        await bench.engine.launch(order)
        await eventually((bench.root / "data/leases/1/members.json").exists)
        await bench.engine.close()

    async def second() -> list[Report]:
        bench.engine = LocalEngine(bench.root / "data", CLUSTER)
        await bench.engine.adopt({1})
        reports: list[Report] = []
        async for report in bench.engine.reports():
            reports.append(report)
            if isinstance(report, Ended):
                break
            if isinstance(report, Progressed):  # the job waits until its step is reported
                (bench.root / f"{report.steps:g}").touch()
        return reports

    asyncio.run(first())
    *before, ended = asyncio.run(second())
    assert before == [Progressed(1, steps) for steps in (1.0, 2.0, 3.0)]
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


def test_a_fenced_launch_starts_no_process(bench: Bench) -> None:
    checkpoint.raise_fence(str(bench.root / "j"), 9)
    (end,) = asyncio.run(bench.train(bench.order(3, "touch", bench.root / "ran")))
    assert end.ending == "refused"
    assert not (bench.root / "ran").exists()


def test_outside_the_scheduler_a_script_runs_unchanged(tmp_path: Path) -> None:
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
