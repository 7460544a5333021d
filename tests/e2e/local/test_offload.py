"""Processes that give up their device and stay: one process over many leases, every step once."""

import asyncio
import json
import os
import pwd
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.local.bench import CLUSTER, uninterrupted
from tests.e2e.local.offload_bench import (
    STEPS,
    CommitLock,
    OffloadBench,
    alive,
    is_frozen,
    until_gone,
)
from tests.e2e.support.lease_server import LeaseServer
from tests.support.two_tenants import GOOD, PYTHON, two_tenants
from tests.support.waiting import eventually, until

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir, log_file
from fairlead.engines.keeper.parking.exit_reasons import (
    CONTAINER,
    NODE_DRAINED,
    OTHER_DEVICES,
    PARKED_WITH_SERVER,
    exit_text,
)
from fairlead.engines.keeper.parking.parked import waits_for_next
from fairlead.engines.local.engine import LocalEngine

ROOT = Path(__file__).parents[3]
LIAR = """import json, os, socket
keeper = socket.socket(fileno=int(os.environ["FAIRLEAD_KEEPER_FD"]))
def say(kind): keeper.sendall(json.dumps({"kind": kind, "environment": {}}).encode() + b"\\n")
say("can_park")
print("ready")
keeper.recv(100)
say("leaving")
keeper.recv(100)
say("parked")
while True: pass
"""
"""a program that claims to be parked and computes on"""
TORCH = """import os, sys
sys.path.insert(0, sys.argv[1])
from tests.unit.job.torch.training import train
train("alone", sys.argv[2], {})
del os.environ["FAIRLEAD_LEASE"]  # the same again, outside the scheduler
train("alone", sys.argv[3], {})
"""


def test_a_job_preempted_ten_times_keeps_its_process_and_ends_bit_identical(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> list[Ended]:
        bench = OffloadBench(tmp_path, server)
        ends = [await bench.preempt(bench.order(n), after=2) for n in range(1, 11)]
        home = tmp_path / "data/leases/1"
        (pid,) = bench.processes(1)[1:]
        assert lease_dir.process_start_ticks(pid) is not None
        await eventually(lambda: os.listdir(home.parent) == ["1"])  # its keeper's home
        await bench.engine.launch(bench.order(11))
        ends.append(await bench.ended())
        await bench.engine.forget([11])
        await eventually(lambda: not os.listdir(home.parent))
        await bench.engine.close()
        seen = {one["lease"] for one in server.renewals}
        assert seen == set(range(1, 12))
        return ends

    ends = asyncio.run(run())
    assert [(end.ending, end.parked) for end in ends] == [("left", True)] * 10 + [
        ("finished", False)
    ]
    assert [end.resumed for end in ends] == [False] + [True] * 10
    steps = [end.steps for end in ends]
    assert steps == sorted(set(steps), key=lambda n: n or 0)
    result = json.loads((tmp_path / "out.0").read_text())
    assert result == {"weight": uninterrupted(STEPS), "steps": list(range(STEPS))}
    assert len({*(tmp_path / "logs").iterdir()}) == 11  # each lease has a log


def test_pytorch_training_that_parks_ends_bit_identical(
    tmp_path: Path, server: LeaseServer
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "torch_train.py").write_text(TORCH)
    command = [sys.executable, tmp_path / "torch_train.py", ROOT]
    command += [tmp_path / "parked", tmp_path / "whole"]

    async def run() -> list[Ended]:
        bench = OffloadBench(tmp_path, server)
        slowly = {"FAIRLEAD_EMULATED_STEPS_PER_S": "2"}  # 48 steps must last for ten leases
        ends = []
        for lease in range(1, 11):
            order = bench.order(lease, *command, total_steps=48)
            order = replace(order, environment={**order.environment, **slowly})
            ends.append(await bench.preempt(order, after=1))
        await bench.engine.launch(bench.order(11, *command, total_steps=48))
        ends.append(await bench.ended(60.0))
        await bench.engine.close()
        return ends

    ends = asyncio.run(run())
    assert [end.parked for end in ends] == [True] * 10 + [False]
    assert [end.resumed for end in ends] == [False] + [True] * 10
    assert ends[-1].ending == "finished"
    results = [(tmp_path / f"{name}.0").read_text() for name in ("parked", "whole")]
    assert results[0] == results[1]


def test_a_parked_process_ends_when_it_is_not_needed_or_memory_is_short(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = OffloadBench(tmp_path, server)
        await bench.preempt(bench.order(1), after=2)
        first = bench.processes(1)
        await eventually(lambda: is_frozen(first[1], tmp_path / "data/leases/1"))
        elsewhere = replace(bench.order(2), devices=(("node", 1),))
        end = await bench.preempt(elsewhere, after=2)
        assert (end.parked, end.resumed) == (True, False)
        assert end.switch == exit_text(OTHER_DEVICES)
        await until_gone(first)
        second = bench.processes(2)
        os.kill(second[1], signal.SIGKILL)  # as the kernel does when memory runs out
        await eventually(lambda: not bench.engine.parked_jobs())
        await bench.preempt(bench.order(3), after=2)
        third = bench.processes(3)
        assert bench.engine.parked_jobs() == {"j": (("node", 0),)}
        for _ in range(2):
            await bench.engine.end_parked("j", drained=True)
        await until_gone([*second, *third])
        end = await bench.preempt(bench.order(4), after=2)
        assert end.switch == exit_text(NODE_DRAINED)
        fourth = bench.processes(4)
        os.kill(fourth[0], signal.SIGKILL)
        until(lambda: not alive(fourth))  # the engine does not run meanwhile: it sees no death
        assert bench.engine.parked_jobs()
        end = await bench.preempt(bench.order(5), after=2)
        assert (end.ending, end.parked, end.resumed) == ("left", True, False)
        fifth = bench.processes(5)
        (tmp_path / "data/leases/5/alive").unlink()  # as a job can
        end = await bench.preempt(bench.order(6), after=2)
        assert (end.ending, end.parked, end.resumed) == ("left", True, False)
        await until_gone(fifth)
        sixth = bench.processes(6)
        (tmp_path / "j/latest.json").unlink()  # its owner wants to start from scratch
        (end,) = await bench.train(bench.order(7))
        assert (end.ending, end.steps) == ("lost", None)
        await until_gone(sixth)
        await bench.preempt(bench.order(8), after=2)
        eighth = bench.processes(8)
        await bench.engine.close()
        await until_gone(eighth)
        small = OffloadBench(tmp_path, server, offload_gib=0.001)
        large = OffloadBench(tmp_path, server)
        for chosen, order in (small, small.order(9)), (large, large.order(10, may_stay=False)):
            end = await chosen.preempt(order, after=2)
            assert (end.ending, end.exit_codes, end.parked) == ("left", (85,), False)
            assert end.switch == end.message
            log = (tmp_path / f"logs/{order.lease}.0.log").read_text()
            if order.may_stay:
                assert re.fullmatch(r"switch: exit \(.* GiB of .*: 0.001 GiB\)", end.switch)
                assert f"fairlead: {end.switch}\n" in log
            else:  # as its owner wants
                assert "switch: exit" not in log + end.switch
        await large.engine.close()
        await small.engine.launch(small.order(11))
        assert (await small.ended()).ending == "finished"
        await small.engine.close()

    asyncio.run(run())
    assert json.loads((tmp_path / "out.0").read_text())["steps"] == list(range(STEPS))


def test_the_first_lease_after_a_restart_names_the_end_of_the_parked_process(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def restarted(bench: OffloadBench, open_leases: list[int]) -> OffloadBench:
        await bench.engine.close()
        again = OffloadBench(tmp_path, server)
        await again.engine.adopt(open_leases)
        return again

    async def run() -> None:
        bench = OffloadBench(tmp_path, server)
        await bench.preempt(bench.order(1), after=2)
        await bench.engine.prepare(bench.order(0, job="prepared"))  # it has had no lease
        home = tmp_path / "data/leases/1"
        await eventually(lambda: waits_for_next(home))
        bench = await restarted(bench, [])
        assert [*bench.engine.remembered_jobs()] == ["j"]
        end = await bench.preempt(bench.order(2), after=2)
        assert (end.resumed, end.switch) == (False, exit_text(PARKED_WITH_SERVER))
        assert f"fairlead: {end.switch}\n" in (tmp_path / "logs/2.0.log").read_text()
        await bench.engine.launch(bench.order(3))
        await eventually(lambda: server.renewals[-1]["lease"] == 3)
        assert not waits_for_next(tmp_path / "data/leases/2")  # if the server ends now, it runs on
        server.leave_from[3] = 1
        await bench.engine.stop(3)
        end = await bench.ended()
        assert (end.parked, end.resumed, end.switch) == (True, True, "")
        bench = await restarted(bench, [3])  # the last server has not recorded its end
        assert (await bench.ended()).parked
        assert [*bench.engine.remembered_jobs()] == ["j"]
        await bench.engine.forget([3])
        assert (await bench.finish(bench.order(4))).switch == exit_text(PARKED_WITH_SERVER)
        assert not bench.engine.remembered_jobs()
        bench.check_results()

    asyncio.run(run())


def test_a_device_is_free_before_the_checkpoint_is_written_and_no_step_counts_before(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = OffloadBench(tmp_path, server)
        first, commits = bench.order(1), CommitLock(bench.order(1))
        end = await bench.preempt(first, after=2, commits=commits)
        assert (end.ending, end.steps, end.parked) == ("left", None, True)
        assert end.unsaved is not None
        # Another job has the device now; the job's own next lease waits for the steps.
        more = int(end.unsaved) + 2  # none of them is saved yet
        next_lease = asyncio.create_task(
            bench.preempt(bench.order(3), after=more, commits=commits)
        )
        await bench.preempt(bench.order(2, job="k", total_steps=None), after=2)
        assert 3 not in {one["lease"] for one in server.renewals}
        commits.release()
        assert (await bench.saved(first)).steps == end.unsaved
        third = await next_lease
        assert third.steps == end.unsaved
        assert third.unsaved is not None
        assert third.steps is not None
        assert third.unsaved > third.steps
        os.kill(bench.processes(1)[1], signal.SIGKILL)  # it dies while it saves
        assert (await bench.saved(bench.order(3))).steps == end.unsaved
        commits.release()
        left = await bench.preempt(bench.order(4), after=2, commits=commits)
        await bench.engine.close()  # a new server lets the process of the last one finish
        bench.engine = LocalEngine(tmp_path / "data", CLUSTER, offload_gib=8.0)
        adoption = asyncio.create_task(bench.engine.adopt([]))
        assert not (await asyncio.wait([adoption], timeout=0.1))[0]
        commits.release()
        await adoption
        assert bench.saved_steps(first) == left.unsaved
        await bench.engine.launch(bench.order(5))
        assert (await bench.ended()).ending == "finished"
        await bench.engine.close()

    asyncio.run(run())
    result = json.loads((tmp_path / "out.0").read_text())
    assert result == {"weight": uninterrupted(STEPS), "steps": list(range(STEPS))}


def test_a_parked_process_keeps_its_user_and_one_that_lies_is_frozen(server: LeaseServer) -> None:
    async def run(root: Path) -> None:
        bench = OffloadBench(root, server)
        bench.engine = LocalEngine(root / "data", CLUSTER, offload_gib=8.0, users=True)
        (root / "jobs").mkdir()

        def order(lease: int, *command: object, job: str) -> LaunchOrder:
            made = bench.order(lease, *command, job=f"jobs/{job}/checkpoint", tenant=GOOD)
            return replace(made, directory="/", log_dir=str(root / "jobs" / job / "logs"))

        train = PYTHON, root / "train.py", STEPS, "/dev/null", 0.015
        ends = [await bench.preempt(order(n, *train, job="j"), after=2) for n in (1, 2)]
        assert [(end.parked, end.resumed) for end in ends] == [(True, False), (True, True)]
        _, pid = bench.processes(1)
        assert Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam(GOOD).pw_uid
        await bench.engine.launch(order(3, PYTHON, "-c", LIAR, job="k"))
        await eventually(
            lambda: "ready" in log_file.read(root / "jobs/k/logs/3.0.log", 0, 99)[1].decode()
        )
        await bench.engine.stop(3)
        end = await bench.ended()
        assert (end.ending, end.steps, end.parked) == ("left", None, True)
        liar = bench.processes(3)
        await eventually(lambda: is_frozen(liar[1], root / "data/leases/3"))
        await bench.engine.close()
        await until_gone([pid, *liar])

    with two_tenants() as (root, _):
        asyncio.run(run(root))


POINTS = [
    point
    for point in (*failpoints.JOB, *failpoints.KEEPER)
    if ".park." in point or ".resume." in point
]


def test_no_step_is_lost_or_repeated_when_processes_die_while_they_park_or_resume(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))
    assert len(POINTS) == 13

    async def run() -> None:
        bench = OffloadBench(tmp_path, server)
        # Three leases: to park, to resume, and to start again.
        lease = await bench.die_at(
            POINTS, lambda n: bench.preempt(bench.order(n), after=1), first=1, tries=3
        )
        await bench.finish(bench.order(lease))
        bench.check_results()

    asyncio.run(run())


def test_a_job_in_a_container_exits_and_the_reason_is_known(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "bin/apptainer"  # it runs the command that follows the image
    runtime.parent.mkdir()
    runtime.write_text(
        '#!/bin/sh\nuntil [ "$1" = /image.sif ]; do shift; done\nshift\nexec "$@"\n'
    )
    runtime.chmod(0o755)
    monkeypatch.setenv("PATH", f"{runtime.parent}:{os.environ['PATH']}")

    async def run() -> Ended:
        bench = OffloadBench(tmp_path, server)
        end = await bench.preempt(bench.order(1, container="/image.sif"), after=2)
        await bench.engine.close()
        return end

    end = asyncio.run(run())
    assert (end.ending, end.exit_codes, end.parked) == ("left", (85,), False)
    assert end.message == end.switch == exit_text(CONTAINER)
