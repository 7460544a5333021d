"""A damaged event log or document is named: never a silent, different state."""

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer

from fairlead.store import DamagedLogError, Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fairlead.db'}"


@contextlib.contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _log_of_ten(url: str) -> None:
    store = Store(url)
    token = store.acquire("test")
    assert token is not None
    for first in (1, 4):
        store.append(token, first, [f'{{"n": {n}}}' for n in range(first, first + 3)])
    store.save_state(token, 2, "state")
    store.append(token, 7, [f'{{"n": {n}}}' for n in range(7, 11)])
    store.close()


def _load(store: Store) -> None:
    state = store.load_state()
    assert state is not None
    for _ in store.load_events(state[0]):
        pass


_DAMAGE = [
    ("DELETE FROM events WHERE seq = 5", "event 5 of the log is missing", 4),
    ("DELETE FROM events WHERE seq = 3", "event 3 of the log is missing", 2),
    ("DELETE FROM events WHERE seq BETWEEN 5 AND 7", "events 5 to 7 of the log are missing", 4),
    ("DELETE FROM events WHERE seq > 8", "events 9 to 10 of the log are missing", 8),
    ("DELETE FROM events", "events 3 to 10 of the log are missing", 2),
    ("UPDATE events SET body = '{\"n\": 66}' WHERE seq = 6", "event 6 of the log is damaged", 5),
    ("UPDATE events SET body = x'00ff' WHERE seq = 6", "event 6 of the log is damaged", 5),
    (
        "UPDATE events SET body = (SELECT body FROM events WHERE seq = 4) WHERE seq = 6",
        "event 6 of the log is damaged",
        5,
    ),
    ("UPDATE states SET body = x'789c' WHERE seq = 2", "state after event 2 is damaged", None),
    ("UPDATE states SET digest = '0' WHERE seq = 2", "state after event 2 is damaged", None),
]


@pytest.mark.parametrize(("statement", "message", "accepted"), _DAMAGE)
def test_every_gap_and_change_in_the_log_is_named(
    tmp_path: Path, url: str, statement: str, message: str, accepted: int | None
) -> None:
    _log_of_ten(url)
    with database(tmp_path / "fairlead.db") as connection:
        connection.execute(statement)
    store = Store(url)
    try:
        with pytest.raises(DamagedLogError, match=message) as caught:
            _load(store)
        assert caught.value.accepted == accepted
        assert "restore a backup of the database" in str(caught.value)
        if accepted is None:
            return
        token = store.acquire("test")
        assert token is not None
        with pytest.raises(DamagedLogError):
            store.cut_log(token, accepted - 1)
        removed = store.cut_log(token, accepted)
        assert all(json.loads(line)["seq"] > accepted for line in removed)
        assert [event.seq for event in store.load_events(2)] == list(range(3, accepted + 1))
        assert store.cut_log(token, accepted) == [], "a repeated start removes nothing"
    finally:
        store.close()


def test_a_log_of_an_earlier_version_is_read_without_checksums(tmp_path: Path, url: str) -> None:
    _log_of_ten(url)
    with database(tmp_path / "fairlead.db") as connection:
        connection.execute("UPDATE events SET digest = NULL")
        connection.execute("UPDATE states SET digest = NULL")
        connection.execute("DELETE FROM documents WHERE kind IN ('log')")
    store = Store(url)
    assert [event.seq for event in store.load_events(2)] == list(range(3, 11))
    store.close()


def _wait_for_exit(server: LiveServer) -> str:
    """Return the last line of a server that does not start."""
    server.launch()
    assert server.process is not None
    assert server.process.wait(120) == 1
    return (server.root / "server.log").read_text().strip().splitlines()[-1]


def _poll(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + 120
    while not (value := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


def _submit(server: LiveServer, name: str, steps: int) -> str:
    command = [sys.executable, str(server.root / "train.py"), str(steps), str(server.root / name)]
    job: str = server.client.submit(command, workload="big", steps=steps)["id"]
    return job


def test_a_server_names_damage_and_goes_on_with_everything_else(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    path = server.data / "fairlead.db"
    try:
        server.start()
        damaged, intact = _submit(server, "one", 100_000), _submit(server, "two", 150)
        _poll(lambda: server.client.job(damaged)["steps_done"] > 0)
        server.kill()  # the log keeps its events
        with database(path) as connection:
            rows = connection.execute(
                "SELECT seq, body, digest FROM events ORDER BY seq"
            ).fetchall()
            last = rows[-1][0]
            connection.execute("DELETE FROM events WHERE seq = ?", (last - 1,))
        line = _wait_for_exit(server)
        assert f"event {last - 1} of the log is missing" in line
        assert f"--accept-log-until {last - 2}" in line
        with database(path) as connection:
            connection.execute("INSERT INTO events VALUES (?, ?, ?)", rows[-2])
            connection.execute(
                "UPDATE documents SET body = '{' WHERE kind IN ('job') AND id = ?", (damaged,)
            )
            connection.execute("INSERT INTO documents VALUES ('token', 'bad', '[]')")
        lease = next(iter((server.data / "leases").iterdir()))
        (lease / "progress.json").write_text("{")
        server.start()
        job = _poll(lambda: (now := server.client.job(damaged))["state"] == "failed" and now)
        assert "the stored job is damaged" in job["message"]
        assert server.client.wait(intact, timeout_s=120)["steps_done"] == 150
        assert (server.root / "two.0").exists()
        findings = json.loads(server.cli("doctor", "--data", server.data, "--json").stdout)
        moved = [f["found"] for f in findings["findings"] if f["what"] == "quarantine"]
        for name in (f"job-{damaged}.json", "token-bad.json", "progress.json"):
            assert any(name in found for found in moved), moved
        server.stop()
        server.start()
        assert server.client.job(damaged)["state"] == "failed"
        assert len(list((server.data / "quarantine").iterdir())) == len(moved)
    finally:
        server.clean_up()


def test_an_operator_can_accept_the_intact_part_of_a_log(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, round_s=60.0)
    try:
        server.start()
        first, second = _submit(server, "one", 10**6), _submit(server, "two", 10**6)
        server.kill()
        with database(server.data / "fairlead.db") as connection:
            # The first event after the submission of the first job is lost.
            query = "SELECT seq, body FROM events WHERE body LIKE '%JobSubmitted%' ORDER BY seq"
            seq = connection.execute(query).fetchall()[1][0]
            connection.execute("UPDATE events SET body = '{}' WHERE seq = ?", (seq,))
        assert f"event {seq} of the log is damaged" in _wait_for_exit(server)
        server.extra = ("--accept-log-until", str(seq - 1))
        server.start()
        assert [job["id"] for job in server.client.get("/v1/jobs")] == [first]
        (copy,) = (server.data / "quarantine").glob(f"*events-after-{seq - 1}.jsonl")
        assert f'"seq": {seq}' in copy.read_text()
        assert _submit(server, "three", 10**6) == second, "numbers continue from the state"
        server.kill()
        server.start()  # the flag is still there: a complete log is left alone
        assert len(server.client.get("/v1/jobs")) == 2
    finally:
        server.clean_up()


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    server.data.mkdir(mode=0o700)
    path = server.data / "fairlead.db"
    path.write_bytes(b"not a database" * 1000)
    path.chmod(0o600)
    line = _wait_for_exit(server)
    assert f"{path}: damaged (file is not a database): restore a backup" in line
