"""Simulations of users: limits per user, requests that are refused, and the process's end."""

import asyncio
import json
from pathlib import Path

import pytest

from fairlead.model.errors import FairleadError, InputError, ProtocolError
from fairlead.server.simulations import process
from fairlead.server.simulations.request import SimulationRequest
from fairlead.server.simulations.runs import SimulationRuns

_WRONG = SimulationRequest(policies=("fifo",), speeds="unknown")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"speeds": "/etc/passwd"}, "speeds: no bundled table '/etc/passwd': expected one of"),
        ({"cluster": "v100=6000"}, "cluster: too many devices: expected at most 5,000"),
        ({"cluster": "/etc/passwd"}, "cluster: "),
        ({"policies": ("max-min", "max-min")}, "duplicate"),
        ({"trace": "job_id\n1\n"}, "trace"),
        ({"trace": "job_id\n1\n", "bundled": True}, "trace: not allowed beside the bundled trace"),
    ],
)
def test_bad_requests_are_refused_before_a_process_starts(
    values: dict[str, object], problem: str
) -> None:
    saved = {"policies": ["max-min"], **values}
    with pytest.raises(FairleadError, match=problem):
        SimulationRequest.from_json(saved).comparison()


def test_the_bundled_trace_can_be_chosen() -> None:
    comparison, options = SimulationRequest(policies=("fifo",), bundled=True).comparison()
    assert (len(comparison.jobs), options.traces) == (120, "default_trace.csv")


def test_a_user_runs_one_simulation_at_a_time_and_keeps_the_last_ones(tmp_path: Path) -> None:
    async def check() -> None:
        runs = SimulationRuns(tmp_path)
        policies = ("finish-time", "max-min", "makespan")  # most of a minute: none ends by itself
        request = SimulationRequest(policies=policies, jobs=2000)
        first = await runs.start("ann", request, 1.0, tenant="red")
        with pytest.raises(ProtocolError, match="one of your simulations is running"):
            await runs.start("ann", request, 1.0)
        with pytest.raises(ProtocolError, match="another simulation of tenant 'red' is running"):
            await runs.start("ann's other token", request, 1.0, tenant="red")
        wrong = [runs.start("bob", _WRONG, 1.0) for _ in range(3)]
        refused = await asyncio.gather(*wrong, return_exceptions=True)
        assert sorted((type(error) for error in refused), key=str) == [
            InputError,
            ProtocolError,
            ProtocolError,
        ]
        assert runs.of("bob") == []
        second = await runs.start("bob", request, 2.0)
        with pytest.raises(ProtocolError, match="2 simulations of other users"):
            await runs.start("eve", request, 2.0)
        for run in (first, second):
            async with asyncio.timeout(60):
                while run.process is None:
                    await asyncio.sleep(0.01)
                while run is first and not _is_limited(run.process.pid):
                    await asyncio.sleep(0.01)
            runs.cancel(run)
            await run.process.wait()
        assert (first.state, second.state) == ("cancelled", "cancelled")
        assert runs.of("ann") == [first]
        assert json.loads((first.folder / "request.json").read_text())["jobs"] == 2000
        while runs._tasks:
            await asyncio.gather(*runs._tasks)
        assert first.process is not None
        assert first.process.returncode == -9

    asyncio.run(check())


def test_a_simulation_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def check() -> None:
        left = tmp_path / "simulations" / "of-an-earlier-server"
        left.mkdir(parents=True)
        runs = SimulationRuns(tmp_path, max_wall_s=0.01)
        request = SimulationRequest(policies=("fifo",), jobs=2000)
        both = [await runs.start(name, request, 1.0) for name in ("ann", "bob")]
        while runs._tasks:
            await asyncio.gather(*runs._tasks)
        for run in both:
            assert (run.state, run.error) == ("failed", "it took longer than 0.01 s")
            assert run.process is not None
            assert await run.process.wait() == -9
        assert not left.exists()

    asyncio.run(check())


def _is_limited(pid: int) -> bool:
    """Return whether a process has its limits of CPU time, memory and files."""
    limits = {
        line[:26].strip(): line[26:].split()[:2]
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
    }
    wanted = {
        "Max cpu time": process.MAX_CPU_S,
        "Max address space": process.MAX_MEMORY_BYTES,
        "Max file size": process.MAX_FILE_BYTES,
        "Max core file size": 0,
    }
    return all(limits[name] == [str(most)] * 2 for name, most in wanted.items())
