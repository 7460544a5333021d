"""Gangs that give up their devices and stay, also in another size: no process is started twice."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Awaitable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local.bench import TRAIN
from tests.e2e.local.offload_bench import OffloadBench, alive, until_gone
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually
from tests.unit.job.torch.gangs import Gang, end, train_elastic

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import log_file
from fairlead.engines.keeper.parking.exit_reasons import OTHER_DEVICES, PARKED_ENDED, exit_text
from fairlead.job import checkpoint

ROOT = Path(__file__).parents[3]
ELASTIC = TRAIN.replace(
    "run.register(",
    """def note(): print("process", os.getpid(), run.rank, run.world_size, flush=True)
note()
run.on_resize(note)
run.register(""",
)
REFUSING = f"""
import os
from fairlead.job.keeper.parking import Parking
if os.environ["RANK"] == "1":
    Parking.ask = lambda self, *_, **__: self.refuse("rank 1 has a reason")
{TRAIN}"""
TORCH = """import sys
sys.path.insert(0, sys.argv[1])
from tests.unit.job.torch.training import train_elastic
train_elastic("ddp", sys.argv[2], {})
"""
SCHEDULE = ((1, 4), (2, 7), (2, 10))
"""(size of the gang, last step) of each lease but the last"""


class ScheduledServer(LeaseServer):
    """Preempts leases after exactly the steps of a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.valid_s = 0.1
        self.last_step: dict[int, int] = {}

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super().answer(lease, body)
        if lease in self.last_step:
            answer = {**answer, "leave": True, "leave_after": self.last_step[lease]}
        return status, {**answer, "valid_s": 60.0, "again_s": 0.05}


class GangBench(OffloadBench):
    """A bench for gangs."""

    def order(self, lease: int, *command: object, **more: Any) -> LaunchOrder:
        return super().order(lease, *command, **{"gang": 2, **more})

    async def preempt(self, order: LaunchOrder, **more: Any) -> Ended:
        self.server.world_size = len(order.devices)
        return await super().preempt(order, **more)


def test_a_gang_preempted_five_times_keeps_its_processes_and_makes_every_step_once(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> list[Ended]:
        bench = GangBench(tmp_path, server)
        ends = [await bench.preempt(bench.order(n), after=2) for n in range(1, 6)]
        assert bench.engine.parked_jobs() == {"j": (("node", 0), ("node", 1))}
        assert alive(bench.processes(1)) == bench.processes(1)
        ends.append(await bench.finish(bench.order(6)))
        bench.check_results(2)
        return ends

    ends = asyncio.run(run())
    assert [(end.ending, end.parked) for end in ends] == [("left", True)] * 5 + [
        ("finished", False)
    ]
    assert [end.resumed for end in ends] == [False] + [True] * 5
    assert len({*(tmp_path / "logs").iterdir()}) == 6 * 2  # one per lease and rank


def test_ranks_that_keep_their_devices_stay_when_their_gang_shrinks_or_grows(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GangBench(tmp_path, server)
        (tmp_path / "train.py").write_text(ELASTIC)
        for lease, gang in enumerate((2, 1, 3, 2), 1):
            end = await bench.preempt(bench.order(lease, gang=gang), after=2)
            assert (end.ending, end.parked, end.resumed) == ("left", True, lease > 1)
            assert end.steps == end.unsaved
        elsewhere = replace(bench.order(5), devices=(("node", 1), ("node", 2)))
        end = await bench.preempt(elsewhere, after=2)
        assert (end.ending, end.parked, end.resumed) == ("left", True, False)
        assert end.switch == exit_text(OTHER_DEVICES)
        assert end.switch in _log(tmp_path, 5)
        assert (await bench.finish(bench.order(6, gang=1))).switch == exit_text(OTHER_DEVICES)
        bench.check_results()

    asyncio.run(run())
    pids = [_processes_of(tmp_path, lease, gang) for lease, gang in enumerate((2, 1, 3, 2), 1)]
    assert pids[1] == pids[0][:1]
    assert pids[2][:1] == pids[0][:1]
    assert pids[3] == pids[2][:2]
    assert not alive([pid for lease in pids for pid in lease])


def test_a_gang_grows_also_if_its_first_process_was_handed_its_lease(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GangBench(tmp_path, server)
        (tmp_path / "train.py").write_text(ELASTIC)
        await bench.engine.prepare(bench.order(1, gang=1))
        end = await bench.preempt(bench.order(1, gang=1), after=2)
        assert (end.handed_over, end.parked) == (True, True)
        assert (await bench.finish(bench.order(2))).resumed
        bench.check_results(2)

    asyncio.run(run())


def test_a_resized_pytorch_gang_ends_with_the_bits_of_one_that_is_restarted(
    tmp_path: Path,
) -> None:
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    again = Gang("ddp", tmp_path, train_elastic)
    again.preload()  # while the first process starts
    (tmp_path / "elastic.py").write_text(TORCH)
    command = [sys.executable, tmp_path / "elastic.py", ROOT, tmp_path / "stayed"]
    server = ScheduledServer()

    async def run() -> list[Ended]:
        bench, ends = GangBench(tmp_path, server), []
        for lease, (gang, last) in enumerate((*SCHEDULE, (1, None)), 1):
            order = bench.order(lease, *command, gang=gang, total_steps=None, grace_s=60.0)
            if last is not None:
                server.last_step[lease] = last
            await bench.engine.launch(order)
            if last is not None:
                await eventually(lambda: _ranks_of(server, lease) == gang)  # noqa: B023
                await bench.engine.stop(lease)
            ends.append(await bench.ended(120.0))
            await bench.engine.forget([lease])
            if ends[-1].unsaved is not None:
                await bench.saved(order)
        await bench.engine.close()
        return ends

    try:
        ends = asyncio.run(run())
        assert [(end.ending, end.resumed) for end in ends] == [
            *[("left", False), ("left", True), ("left", True)],
            ("finished", True),
        ]
        directory = str(tmp_path / "restarted_checkpoint")
        environment = {
            "FAIRLEAD_URL": server.url,
            "FAIRLEAD_JOB_TOKEN": "secret",
            "FAIRLEAD_CHECKPOINT_DIR": directory,
        }
        for lease, (gang, _) in enumerate((*SCHEDULE, (1, None)), 1):
            again.world_size = gang
            checkpoint.raise_fence(directory, lease)
            end(again.start("restarted", {**environment, "FAIRLEAD_LEASE": str(lease)}))
        for rank, expected in enumerate(again.results("restarted")):
            assert json.loads((tmp_path / f"stayed.{rank}").read_text()) == expected
        assert expected["ranks"] == [1] * 4 + [2] * 6 + [1] * 16
    finally:
        server.close()


def test_a_gang_of_which_one_member_cannot_park_exits_and_the_reason_is_known(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> Ended:
        bench = GangBench(tmp_path, server)
        (tmp_path / "train.py").write_text(REFUSING)
        end = await bench.preempt(bench.order(1), after=2)
        await bench.engine.close()
        return end

    end = asyncio.run(run())
    assert (end.ending, end.exit_codes, end.parked) == ("left", (85, 85), False)
    assert end.message == end.switch == "switch: exit (rank 1 has a reason)"
    assert end.message in _log(tmp_path, 1)


def test_a_parked_gang_ends_with_any_of_its_processes_and_loses_no_step(
    tmp_path: Path, server: LeaseServer
) -> None:
    async def run() -> None:
        bench = GangBench(tmp_path, server)
        for lease, victim in enumerate((0, 1, 2), 1):  # the keeper, rank 0, rank 1
            end = await bench.preempt(bench.order(lease), after=2)
            assert (end.parked, end.resumed, end.steps) == (True, False, end.unsaved)
            processes = bench.processes(lease)
            os.kill(processes[victim], signal.SIGKILL)
            await until_gone(processes)
            await eventually(lambda: not bench.engine.parked_jobs())
        assert (await bench.finish(bench.order(4))).switch == exit_text(PARKED_ENDED)
        bench.check_results(2)

    asyncio.run(run())


POINTS = (
    *("job.park.allowed", "job.park.released", "job.park.joined", "job.restored"),
    *("keeper.resume.known", "keeper.member.started", "keeper.resize.done"),
)


GRACE_S = 4.0
"""a gang whose member has died waits for it until then"""


def test_no_step_is_lost_or_repeated_when_a_process_dies_while_its_gang_is_resized(
    tmp_path: Path, server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))

    async def run() -> None:
        bench = GangBench(tmp_path, server)
        (tmp_path / "train.py").write_text(ELASTIC)

        def run_resized(lease: int) -> Awaitable[Ended]:
            order = bench.order(lease, gang=1 + lease % 2, grace_s=GRACE_S)
            return bench.preempt(order, after=1)

        await bench.preempt(bench.order(1, grace_s=GRACE_S), after=1)
        # Four leases: to shrink, to grow, and to start again.
        lease = await bench.die_at(POINTS, run_resized, first=2, tries=4)
        await bench.finish(bench.order(lease))
        bench.check_results(2)

    asyncio.run(run())


def _log(root: Path, lease: int, rank: int = 0) -> str:
    return log_file.read(root / f"logs/{lease}.{rank}.log", 0, 1000)[1].decode()


def _processes_of(root: Path, lease: int, gang: int) -> list[int]:
    """Return rank → the process that has noted itself as that rank of a lease's gang."""
    pids = []
    for rank in range(gang):
        text = _log(root, lease, rank)
        (pid,) = re.findall(rf"^process (\d+) {rank} {gang}$", text, re.MULTILINE)
        pids.append(int(pid))
    return pids


def _ranks_of(server: LeaseServer, lease: int) -> int:
    """Return the number of ranks that have renewed a lease."""
    return len({one["rank"] for one in server.renewals if one["lease"] == lease})
