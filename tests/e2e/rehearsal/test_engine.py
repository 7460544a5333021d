"""A rehearsal runs the whole control plane: leases start, move, finish, and outlive the server."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path, devices="v100=16/4,k80=16/4", round_s=2.0)
    server.extra = ("--engine", "rehearsal")
    try:
        yield server.start()
    finally:
        server.clean_up()
        pid = server.data / "rehearsal/pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)


def submit(server: LiveServer, count: int, steps: int) -> list[str]:
    shapes = (("big", 2), ("small", 1), ("big", 1))
    made = [
        server.client.submit(["no"], directory="/", workload=workload, gang=gang, steps=steps)
        for workload, gang in (shapes[i % 3] for i in range(count))
    ]
    return [str(job["id"]) for job in made]


def ended(server: LiveServer, ids: list[str]) -> list[dict[str, Any]]:
    return [server.client.wait(job_id, timeout_s=240) for job_id in ids]


def test_rehearsed_jobs_finish_with_their_steps_after_moves(server: LiveServer) -> None:
    ids = submit(server, 45, steps=200)
    results = ended(server, ids)
    assert [job["state"] for job in results] == ["finished"] * len(ids)
    assert all(job["steps_done"] == 200 for job in results)
    assert sum(job["preemptions"] for job in results) > 0, "no job was preempted"
    assert sum(job["failures"] for job in results) == 0


def test_rehearsed_jobs_outlive_the_server_and_are_adopted(server: LiveServer) -> None:
    ids = submit(server, 12, steps=300)
    until = time.monotonic() + 120
    # A lease is granted before its members exist: they do once the job has reported a step.
    while not all(job["steps_done"] > 0 for job in server.client.get("/v1/jobs")):
        assert time.monotonic() < until
        time.sleep(0.1)
    server.kill()
    server.start()
    results = ended(server, ids)
    assert [job["state"] for job in results] == ["finished"] * len(ids)
    # The leases survived the restart, so no step was made twice.
    assert "lost" not in (server.root / "server.log").read_text()
