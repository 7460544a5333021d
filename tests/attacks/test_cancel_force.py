"""A job that ignores the stop signal during a long grace: a forced cancellation kills it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path, devices="v100=1").start()
    try:
        yield server
    finally:
        server.clean_up()


def test_a_forced_cancellation_frees_the_device_at_once(server: LiveServer) -> None:
    script = server.root / "stubborn.py"
    script.write_text(STUBBORN)
    submitted = server.cli("submit", "--grace", "3600", "--workload", "big", str(script))
    assert submitted.returncode == 0, submitted.stderr
    _wait_for(lambda: "ready" in server.cli("logs", "j1").stdout)
    assert server.cli("cancel", "j1").returncode == 0
    time.sleep(1.0)
    assert server.client.get("/v1/jobs/j1")["devices"] == 1, "the job honours the signal"

    forced = server.cli("cancel", "--force", "j1")

    assert forced.returncode == 0, forced.stderr
    _wait_for(lambda: server.client.get("/v1/jobs/j1")["devices"] == 0)
    assert server.client.get("/v1/jobs/j1")["state"] == "cancelled"
    done = server.client.post("/v1/jobs", {"command": ["true"], "workload": "big"})["id"]
    _wait_for(lambda: server.client.get(f"/v1/jobs/{done}")["state"] == "finished")


def _wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
