"""Jobs that take turns on one device without new processes, on a server that is killed."""

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
from fairlead.job import checkpoint
from fairlead.job.state_format import decode_state

SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
line,1,v100,,,250,
"""
POINTS = [one for one in failpoints.SERVER if ".park." in one or ".resume." in one]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    (tmp_path / "crashes").mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "crashes"))
    server = LiveServer(tmp_path, devices="v100=1", round_s=0.7)
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    server.extra = ("--offload-memory", "8")
    yield server.start()
    server.clean_up()


def test_two_jobs_on_one_device_keep_their_processes_and_a_dying_server_loses_no_step(
    server: LiveServer, tmp_path: Path
) -> None:
    client, command = server.client, [sys.executable, str(tmp_path / "train.py"), "100000"]
    jobs = [
        str(client.submit([*command, "out"], workload="line", steps=100_000, retries=9)["id"])
        for _ in range(2)
    ]

    def ways(job: str) -> list[tuple[str, str]]:
        ended = client.get(f"/v1/jobs/{job}/leases")["ended"]
        return [(lease["began"], lease["left"]) for lease in ended]

    until(lambda: all(("resume", "offload") in ways(job) for job in jobs))
    shown = run_command(["job", jobs[0]], {**server.environment, "COLUMNS": "200"}).stdout
    assert re.search(r"resume \d\.\d s │ offload \d\.\d s", shown), shown
    # The process of a suspended job ends, and the other job has the device alone.
    client.suspend(jobs[0])
    until(lambda: not _processes(server, jobs[0]))
    client.resume(jobs[0])
    for point in POINTS:
        (tmp_path / "crashes" / point).touch()
        until(lambda: server.process is not None and server.process.poll() is not None)
        server.start()
    for job in jobs:
        client.suspend(job)
    until(lambda: not os.listdir(server.data / "leases"))
    for job in jobs:
        _check_checkpoint(server, job, tmp_path / f"{job}.json")


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
