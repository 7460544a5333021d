"""A locked or unreachable database is waited for; then the server ends in an orderly way."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support import postgres
from tests.support.postgres import Postgres

SLEEP = ["sleep", "1000"]


def _poll(condition: Callable[[], object], label: str) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, label
        time.sleep(0.05)


def _logged(server: LiveServer, word: str) -> int:
    return (server.root / "server.log").read_text().count(word)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a SQLite database as a backup tool does."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


def _submit_beside(server: LiveServer) -> threading.Thread:
    """Submit a job from another thread, which waits as long as the server does."""
    command = [sys.executable, "-m", "fairlead", "submit", "--workload", "big", "--", *SLEEP]
    environment = server.environment
    thread = threading.Thread(
        target=lambda: subprocess.run(command, env=environment, capture_output=True, check=False)
    )
    thread.start()
    return thread


def test_a_server_waits_for_a_locked_database_and_then_ends(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, round_s=60.0)
    server.extra = ("--database-wait", "60")
    path = server.data / "fairlead.db"
    try:
        server.start()
        with _locked(path):
            request = _submit_beside(server)
            _poll(lambda: _logged(server, "store.waiting"), "a log line about the lock")
        request.join(120)
        assert len(server.client.get("/v1/jobs")) == 1, "the submission was kept"
        server.stop()
        with _locked(path):
            server.launch()
            _poll(lambda: _logged(server, "store.waiting") > 1, "a start that waits")
        server.wait_until_up()
        assert len(server.client.get("/v1/jobs")) == 1
        server.stop()
        server.extra = ("--database-wait", "1")
        server.start()
        assert server.process is not None
        with _locked(path):
            request = _submit_beside(server)
            assert server.process.wait(120) == 1, "not killed: it ends by itself"
        request.join(120)
        last = (server.root / "server.log").read_text().strip().splitlines()[-1]
        assert "database: not available for" in last
        assert "database is locked" in last
        assert _logged(server, "Traceback") == 0
        server.start()  # as a supervisor would
    finally:
        server.clean_up()


@pytest.fixture
def database() -> Iterator[Postgres]:
    if postgres.missing():
        pytest.skip(postgres.missing())
    made = Postgres()
    yield made
    made.stop()


def test_a_server_survives_a_restart_of_postgresql_and_hides_its_password(
    tmp_path: Path, database: Postgres
) -> None:
    password = "hunter2 secret"
    url = database.database_with_password(password)
    server = LiveServer(tmp_path, devices="v100=4", round_s=60.0)
    server.forks = False
    server.extra = ("--database", url, "--database-wait", "90", "--database-password-file")
    secret = tmp_path / "password"
    secret.write_text(f"{password}\n")
    secret.chmod(0o600)
    server.extra = (*server.extra, str(secret))
    try:
        server.start()
        assert server.process is not None
        process = Path(f"/proc/{server.process.pid}")
        assert b"hunter2" not in (process / "cmdline").read_bytes()
        pid = server.process.pid
        database.restart()
        job = server.client.submit(SLEEP, workload="big")["id"]
        database.kill()
        request = _submit_beside(server)
        _poll(lambda: _logged(server, "store.waiting"), "a log line about the lost server")
        database.start()
        request.join(120)
        assert len(server.client.get("/v1/jobs")) == 2
        assert server.process.poll() is None
        assert server.process.pid == pid
        doctor = server.cli("doctor", "--data", server.data)
        assert "hunter2" not in doctor.stdout + doctor.stderr
        server.kill()
        # The same from the environment; no job inherits it.
        server.extra = ("--database", url, "--database-wait", "90")
        os.environ["FAIRLEAD_DATABASE_PASSWORD"] = password
        try:
            server.start()
        finally:
            del os.environ["FAIRLEAD_DATABASE_PASSWORD"]
        assert server.client.job(job)["id"] == job
        show = server.client.submit(["env"], workload="big")["id"]
        server.client.wait(show, timeout_s=120)
        logs = server.client.raw("GET", f"/v1/jobs/{show}/logs")[2]
        assert b"FAIRLEAD_JOB=" in logs
        assert b"hunter2" not in logs
        server.stop()
        assert _logged(server, "hunter2") == 0
        refused = server.cli("serve", "--data", server.data, *server.extra, "--emulate", "v100=1")
        assert refused.returncode == 1
        assert "no password supplied" in refused.stderr
    finally:
        server.clean_up()
