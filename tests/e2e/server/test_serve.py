"""A real server from the operator's view: settings, logs, shutdown and errors."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from tests.e2e.support.live_server import LiveServer, json_output

from fairlead.client import Client, ServerError, UnreachableError
from fairlead.store import Store


def test_settings_come_from_file_environment_and_flags(own_server: LiveServer) -> None:
    own_server.data.mkdir()
    (own_server.data / "fairlead.toml").write_text('policy = "fifo"\nlog_format = "json"\n')
    own_server.extra = ("--log-level", "debug")
    own_server.start()
    assert own_server.client.get("/v1/about")["policy"] == "fifo"
    checked = json_output(own_server, "config", "check")["settings"]
    assert checked["policy"]["value"] == "fifo"
    assert checked["policy"]["origin"].endswith("fairlead.toml:1")
    assert checked["port"] == {"value": 8642, "origin": "default"}


def test_logs_are_json_with_an_entry_for_each_request_and_no_secrets(
    own_server: LiveServer,
) -> None:
    own_server.extra = ("--log-format", "json")
    own_server.start()
    admin = own_server.client
    made = admin.post("/v1/tokens", {"name": "eve", "role": "viewer"})
    assert admin.raw("DELETE", f"/v1/tokens/{made['token']}")[0] == 404  # the token is not its id
    own_server.stop()
    lines = (own_server.root / "server.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert {"method": "POST", "path": "/v1/tokens", "status": 201, "who": "admin"}.items() <= next(
        entry for entry in entries if entry.get("path") == "/v1/tokens"
    ).items()
    assert [entry["event"] for entry in entries[-2:]] == ["server.stopping", "server.stopped"]
    assert made["token"] not in "\n".join(lines)
    assert (own_server.data / "admin.token").read_text() not in "\n".join(lines)


def test_sigterm_stops_the_server_despite_an_event_stream_and_jobs_keep_running(
    own_server: LiveServer,
) -> None:
    own_server.start()
    job = own_server.client.submit(["sleep", "8"], workload="small", retries=0)["id"]
    last: list[str] = []

    def listen() -> None:
        last.extend(event["event"] for event in own_server.client.events())

    follower = threading.Thread(target=listen, daemon=True)
    follower.start()
    until = time.monotonic() + 90
    while own_server.client.job(job)["state"] != "running" and time.monotonic() < until:
        time.sleep(0.05)
    own_server.until_followed(job, last)
    assert own_server.process is not None
    began = time.monotonic()
    own_server.process.send_signal(signal.SIGTERM)
    assert own_server.process.wait(60) == 0
    assert time.monotonic() - began < 14.0  # a stream that the server does not end lasts 15 s
    follower.join(30)
    assert last[-1] == "server.stopping"
    store = Store(f"sqlite:///{own_server.data}/fairlead.db")
    state = store.load_state()
    assert state is not None
    assert list(store.load_events(state[0])) == []  # the next version replays nothing
    store.close()
    own_server.start()
    ended = own_server.client.wait(job, timeout_s=90)
    assert (ended["state"], ended["leases"], ended["preemptions"]) == ("finished", 1, 0)


def test_waiting_for_a_job_survives_a_restart_of_the_server(own_server: LiveServer) -> None:
    own_server.extra = ("--log-format", "json")
    own_server.start()
    client = own_server.client
    job = client.submit(["sleep", "3"], workload="small", retries=0)["id"]
    command = [sys.executable, "-m", "fairlead", "job", job, "--wait", "--json"]
    environment = own_server.environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as waiting:
        while f"/v1/jobs/{job}" not in (own_server.root / "server.log").read_text():
            time.sleep(0.05)
        own_server.kill()
        with pytest.raises(TimeoutError, match=r"not known to have ended: .* does not answer"):
            client.wait(job, timeout_s=0.5)
        own_server.start()
        assert client.wait(job, timeout_s=90)["state"] == "finished"
        shown = waiting.communicate(timeout=90)[0]
    assert (waiting.returncode, json.loads(shown)["state"]) == (0, "finished")
    token = (own_server.data / "admin.token").read_text()
    with closing(Client(client.url, token, reconnect_s=0.5)) as impatient:
        assert impatient.job(job).state == "finished"
        own_server.stop()
        with pytest.raises(UnreachableError):
            impatient.wait(job)
        with pytest.raises(UnreachableError, match="the submission may have arrived"):
            impatient.submit_all([{"command": ["true"]}])


def test_waiting_for_a_job_fails_at_once_without_a_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="does not answer"):
            Client(f"http://127.0.0.1:{taken.getsockname()[1]}", "fl_0_0").wait("j1")
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--data", "speeds.csv", "data: "),
        (
            "--database",
            "postgresql+psycopg://u@127.0.0.1:1/x",
            "database: not available",
        ),
    ],
)
def test_a_store_that_cannot_be_opened_is_reported_in_one_line(
    own_server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv("FAIRLEAD_DATABASE_PASSWORD", "hunter2")
    value = str(own_server.root / value) if flag == "--data" else value
    refused = own_server.cli(
        "serve", "--data", own_server.data, "--emulate", "v100=1", "--port", own_server.port,
        "--database-wait", 0, flag, value,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith(f"fairlead: {message}")
    assert "hunter2" not in refused.stderr


def test_a_rate_limited_client_gets_retry_after_and_other_clients_are_not_limited(
    own_server: LiveServer,
) -> None:
    own_server.extra = ("--requests-per-s", "2", "--requests-burst", "12")
    own_server.start()
    admin = own_server.client
    made = admin.post("/v1/tokens", {"name": "eager", "role": "viewer"})
    eager = Client(f"http://127.0.0.1:{own_server.port}", made["token"])
    began, accepted = time.monotonic(), 0
    while (answer := eager.raw("GET", "/v1/nodes"))[0] == 200:
        accepted += 1
    assert 12 <= accepted <= 13 + 2 * (time.monotonic() - began)
    status, headers, text = answer
    assert (status, headers["retry-after"]) == (429, "1")
    error = json.loads(text)["error"]
    assert error["code"] == "busy"
    assert error["message"].startswith("rate limit exceeded; retry in ")
    assert admin.raw("GET", "/v1/nodes")[0] == 200
    assert eager.get("/v1/nodes")  # the client honours Retry-After
    invalid = Client(f"http://127.0.0.1:{own_server.port}", "fl_0123_nonsense")
    assert 429 in (invalid.raw("GET", "/v1/nodes")[0] for _ in range(10_000))
    eager.close()
    invalid.close()


def test_a_body_above_the_limit_is_refused(own_server: LiveServer) -> None:
    own_server.extra = ("--body-mib", "0.05")
    own_server.start()
    body = {"command": ["x" * 4000] * 20, "workload": "small"}
    status, _, text = own_server.client.raw("POST", "/v1/jobs", body)
    assert status == 413
    assert "above 52428 bytes" in json.loads(text)["error"]["message"]
    with pytest.raises(ServerError, match="above"):
        own_server.client.post("/v1/jobs", body)
