"""Jobs that take turns on devices without a new start, on a server that is killed."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.support.forks import run_command
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.trained_line import check_result
from tests.support.waiting import until

from fairlead import failpoints
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.parking.exit_reasons import PARKED_WITH_SERVER, exit_text
from fairlead.job import checkpoint
from fairlead.job.state_format import decode_state

SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
line,1,v100,,,250,
line,1,k80,,,100,
"""
POINTS = [one for one in failpoints.SERVER if ".park." in one or ".resume." in one]
HAND_OVER_POINTS = [one for one in failpoints.SERVER if ".prepare." in one]


@pytest.fixture(params=[("v100=1", 0.7)])
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[LiveServer]:
    (tmp_path / "crashes").mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))
    devices, round_s = request.param
    server = LiveServer(tmp_path, devices=devices, round_s=round_s)
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    server.extra = ("--offload-memory", "8")
    yield server.start()
    server.clean_up()


def test_two_jobs_on_one_device_keep_their_processes_and_a_dying_server_loses_no_step(
    server: LiveServer,
) -> None:
    client, jobs = server.client, _submit_two(server)
    until(lambda: all(("resume", "offload") in _ways(server, job) for job in jobs), "", 240.0)
    assert re.search(r"resume \d+\.\d s │ offload \d+\.\d s", _shown(server, jobs[0]))
    # The process of a suspended job ends, and the other job has the device alone.
    client.suspend(jobs[0])
    until(lambda: not _processes(server, jobs[0]))
    client.resume(jobs[0])
    _kill_server_at(server, POINTS)
    until(lambda: any(exit_text(PARKED_WITH_SERVER) in _switches(server, job) for job in jobs))
    _suspend_and_check(server, jobs)


@pytest.mark.parametrize("server", [("v100=1,k80=1", 3.0)], indirect=True)
def test_two_jobs_exchange_devices_by_hand_over_and_a_dying_server_loses_no_step(
    server: LiveServer,
) -> None:
    jobs = _submit_two(server)
    until(lambda: all(("hand-over", "offload") in _ways(server, job) for job in jobs), "", 240.0)
    assert re.search(r"hand-over \d+\.\d s │", _shown(server, jobs[0]))
    _kill_server_at(server, HAND_OVER_POINTS)
    _suspend_and_check(server, jobs)


def _submit_two(server: LiveServer) -> list[str]:
    command = [sys.executable, str(server.root / "train.py"), "100000", "out"]
    submit = server.client.submit
    return [
        str(submit(command, workload="line", steps=100_000, retries=9)["id"]) for _ in range(2)
    ]


def _ways(server: LiveServer, job: str) -> list[tuple[str, str]]:
    """Return how each ended lease of a job has got its device, and given it up."""
    ended = server.client.get(f"/v1/jobs/{job}/leases")["ended"]
    return [(lease["began"], lease["left"]) for lease in ended]


def _switches(server: LiveServer, job: str) -> list[str]:
    """Return the reason of each ended lease of a job for which a process did not stay."""
    ended = server.client.get(f"/v1/jobs/{job}/leases")["ended"]
    return [lease["switch"] for lease in ended]


def _shown(server: LiveServer, job: str) -> str:
    return run_command(["job", job], {**server.environment, "COLUMNS": "200"}).stdout


def _kill_server_at(server: LiveServer, points: list[str]) -> None:
    for point in points:
        (server.root / "crashes" / point).touch()
        until(lambda: server.process is not None and server.process.poll() is not None)
        server.start()


def _suspend_and_check(server: LiveServer, jobs: list[str]) -> None:
    """Suspend jobs: nothing of their processes stays, and every counted step was made once."""
    for job in jobs:
        server.client.suspend(job)
    until(lambda: not os.listdir(server.data / "leases"))
    for job in jobs:
        _check_checkpoint(server, job, server.root / f"{job}.json")


def _check_checkpoint(server: LiveServer, job: str, result: Path) -> None:
    """Check that a job's checkpoint has its counted steps, each of them made once."""
    directory = str(server.data / "jobs" / job / "checkpoint")
    committed, payload = checkpoint.latest(directory), checkpoint.read(directory, 0)
    assert committed is not None
    assert payload is not None
    # The last process may have saved its steps a moment ago, after its lease.
    until(lambda: server.client.job(job)["steps_done"] == committed.steps)
    state = decode_state(payload)
    result.write_text(json.dumps({**state["line"], **state["losses"]}))
    check_result(result, committed.steps)


def _processes(server: LiveServer, job: str) -> list[int]:
    """Return the living processes of a job's leases."""
    pids = []
    for directory in (server.data / "leases").iterdir():
        with suppress(FileNotFoundError):  # the server has just removed it
            order, members = lease_dir.read_order(directory), lease_dir.read_members(directory)
            if members is not None and order.job == job:
                pids += [
                    pid for pid, at in members.started if lease_dir.process_start_ticks(pid) == at
                ]
    return pids
