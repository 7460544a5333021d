"""A job that ignores the stop signal during a long grace: a forced cancellation kills it."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead import failpoints
from fairlead.client import ServerError
from fairlead.store import Store

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
    until(lambda: "ready" in server.cli("logs", "j1").stdout)
    assert server.cli("cancel", "j1").returncode == 0
    time.sleep(1.0)
    assert server.client.get("/v1/jobs/j1")["devices"] == 1, "the job honours the signal"

    forced = server.cli("cancel", "--force", "j1")

    assert forced.returncode == 0, forced.stderr
    until(lambda: server.client.get("/v1/jobs/j1")["devices"] == 0)
    assert server.client.get("/v1/jobs/j1")["state"] == "cancelled"
    done = server.client.post("/v1/jobs", {"command": ["true"], "workload": "big"})["id"]
    until(lambda: server.client.get(f"/v1/jobs/{done}")["state"] == "finished")


def test_a_forced_cancellation_survives_the_death_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(crashes))
    server = LiveServer(tmp_path, devices="v100=1").start()
    try:
        script = server.root / "stubborn.py"
        script.write_text(STUBBORN)
        assert not server.cli(
            "submit", "--grace", "3600", "--workload", "big", str(script)
        ).returncode
        until(lambda: "ready" in server.cli("logs", "j1").stdout)
        for _ in range(20):
            (crashes / "server.commit.after").touch()
            with contextlib.suppress(ServerError):
                server.client.post("/v1/jobs/j1/cancel?force=true", {})
            assert server.process is not None
            server.process.wait(90)
            store = Store(f"sqlite:///{server.data}/fairlead.db")
            promised = "j1" in store.documents("kill")
            store.close()
            if not promised:  # it died with another commit
                server.start()
                continue
            keeper = json.loads(next(server.data.glob("leases/*/members.json")).read_text())
            assert Path(f"/proc/{keeper['keeper']}").exists(), "killed before the server's death"
            server.start()
            break
        until(lambda: server.client.get("/v1/jobs/j1")["devices"] == 0)
        assert server.client.get("/v1/jobs/j1")["state"] == "cancelled"
    finally:
        server.clean_up()
