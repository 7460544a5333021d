"""Secrets of jobs: they reach the job's environment and no other place, and no other tenant."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.client import Client, ServerError
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.server.access.secrets import (
    MAX_PER_TENANT,
    JobSecrets,
    SecretUnavailableError,
    load_job_secrets,
)
from fairlead.store import Put

CLIENTS: list[Client] = []
"""clients that the end of the module closes"""
VALUE, FILE_VALUE = "s3cr3t-value-of-alpha", "first line of a key\nsecond line of a key\n"
REPORT = """
import hashlib, os, sys, time
for name in ("TOKEN", "KEY"):
    print("hash", hashlib.sha256(os.environ[name].encode()).hexdigest())
print("leaks", os.environ["TOKEN"], os.environ["KEY"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("secrets"), devices="v100=4")
    server.extra = ("--log-level", "debug", "--trust-jobs")
    server.start()
    yield server
    for client in CLIENTS:
        client.close()
    server.clean_up()


def client_of(server: LiveServer, role: str, tenant: str | None = None) -> Client:
    body = {"name": f"{tenant or role}", "role": role, "tenant": tenant}
    token = server.client.post("/v1/tokens", body)["token"]
    CLIENTS.append(Client(f"http://127.0.0.1:{server.port}", token))
    return CLIENTS[-1]


def set_by_cli(server: LiveServer, value: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "fairlead", "secret", "set", *arguments]
    subprocess.run(command, input=value, text=True, env=server.environment, check=True, timeout=60)


def appears_in(value: str, texts: dict[str, str]) -> list[str]:
    """Return the places in which a line of a secret is found."""
    lines = [line for line in value.split("\n") if line]
    return [place for place, text in texts.items() if any(line in text for line in lines)]


def readable_places(server: LiveServer, job_id: str) -> dict[str, str]:
    """Return place → text of all files, process lists, views and outputs while a job runs."""
    places: dict[str, str] = {}
    for path in [*server.data.rglob("*"), server.root / "server.log"]:
        if path.is_file():
            places[str(path)] = path.read_bytes().decode(errors="replace")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            places[str(path)] = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
    for view in ("jobs", f"jobs/{job_id}", f"jobs/{job_id}/logs", "secrets", "audit", "instance"):
        status, _, body = server.client.raw("GET", f"/v1/{view}")
        assert status == 200, (view, body)
        places[f"GET {view}"] = body.decode()
    places["GET metrics"] = server.client.raw("GET", "/metrics")[2].decode()
    for arguments in (("jobs",), ("job", job_id), ("secret", "list"), ("doctor",)):
        result = server.cli(*arguments)
        places[" ".join(arguments)] = result.stdout + result.stderr
    return places


def test_a_secret_reaches_the_job_and_no_other_place(server: LiveServer) -> None:
    key_file, done = server.root / "key.pem", server.root / "done"
    key_file.write_text(FILE_VALUE)
    set_by_cli(server, f"{VALUE}\n", "TOKEN", "--tenant", "alpha")
    set_by_cli(server, "", "DEPLOY_KEY", "--tenant", "alpha", "--file", str(key_file))
    key_file.unlink()
    events: list[str] = []

    def follow() -> None:
        try:
            events.extend(json.dumps(event) for event in alpha.events())
        except ServerError:
            return

    alpha = client_of(server, "tenant", "alpha")
    threading.Thread(target=follow, daemon=True).start()
    job = alpha.submit(
        ["python3", "-c", REPORT, str(done)],
        workload="big",
        environment={"PATH": "/usr/bin:/bin"},
        secrets=["TOKEN", "DEPLOY_KEY=KEY"],
    )["id"]

    def log() -> str:
        return alpha.raw("GET", f"/v1/jobs/{job}/logs")[2].decode()

    until(lambda: "leaks" in log())
    places = readable_places(server, job)
    done.touch()
    assert alpha.wait(job, timeout_s=90)["state"] == "finished"
    until(lambda: any("lease.ended" in event for event in events))
    places["events"] = "\n".join(events)
    assert digest(VALUE) in log()
    assert digest(FILE_VALUE) in log()
    assert "leaks *** ***\n***\n" in log()
    assert appears_in(VALUE, places) == []
    assert appears_in(FILE_VALUE, places) == []
    orders = [text for place, text in places.items() if place.endswith("order.json")]
    assert '"secrets": {"TOKEN": "TOKEN", "KEY": "DEPLOY_KEY"}' in orders[0]
    assert (server.data / "secrets.key").stat().st_mode & 0o777 == 0o600
    (row,) = (row for row in alpha.get("/v1/secrets") if row["name"] == "TOKEN")
    assert row["tenant"] == "alpha"
    assert row["created_at"] == row["changed_at"] > 0


def test_tenants_name_list_change_and_remove_their_own_secrets_only(server: LiveServer) -> None:
    server.client.ask("PUT", "/v1/secrets/SHARED", {"value": "of alpha 1234", "tenant": "alpha"})
    beta, viewer = client_of(server, "tenant", "beta"), client_of(server, "viewer")
    with pytest.raises(
        ServerError, match="secrets: tenant 'beta' has no secret 'SHARED': expected"
    ):
        beta.submit(["true"], workload="big", secrets=["SHARED"])
    for name, body in (("DELETE", None), ("PUT", {"value": "x", "tenant": "alpha"})):
        with pytest.raises(ServerError, match="tenant 'alpha': not permitted"):
            beta.ask(name, f"/v1/secrets/SHARED{'?tenant=alpha' if body is None else ''}", body)
    assert beta.get("/v1/secrets") == []
    with pytest.raises(ServerError, match="tenant 'alpha': not permitted"):
        beta.get("/v1/secrets", tenant="alpha")
    with pytest.raises(ServerError, match="role viewer"):
        viewer.get("/v1/secrets")
    with pytest.raises(ServerError, match="role viewer"):
        viewer.ask("PUT", "/v1/secrets/A", {"value": "x"})
    with pytest.raises(ServerError, match="role viewer"):
        viewer.ask("DELETE", "/v1/secrets/A")
    tenants = {row["tenant"] for row in server.client.get("/v1/secrets")}
    assert "alpha" in tenants


def ask(server: LiveServer, token: str, method: str, path: str) -> tuple[int, Any]:
    client = Client(f"http://127.0.0.1:{server.port}", token)
    status, _, body = client.raw(method, path)
    client.close()
    return status, json.loads(body)


def post_secrets(server: LiveServer, lease: int, token: str) -> tuple[int, Any]:
    return ask(server, token, "POST", f"/v1/leases/{lease}/secrets")


def test_values_are_given_to_the_token_of_an_open_lease_only(server: LiveServer) -> None:
    gamma = client_of(server, "tenant", "gamma")
    gamma.ask("PUT", "/v1/secrets/TOKEN", {"value": "first of gamma"})
    done = server.root / "done-gamma"
    job = gamma.submit(
        ["sh", "-c", f"until test -e {done}; do sleep 0.05; done; echo $TOKEN | md5sum"],
        workload="big",
        secrets=["TOKEN"],
    )["id"]
    until(lambda: gamma.job(job)["state"] == "running")
    lease, order = until(lambda: server.running_lease(job))
    token = order.environment["FAIRLEAD_JOB_TOKEN"]
    assert post_secrets(server, lease, token) == (200, {"values": {"TOKEN": "first of gamma"}})
    assert post_secrets(server, lease + 1, token)[0] == 401
    assert post_secrets(server, lease, "0" * 64)[0] == 401
    assert post_secrets(server, lease, (server.data / "admin.token").read_text())[0] == 401
    assert ask(server, token, "GET", "/v1/secrets")[0] == 401
    statuses = (post_secrets(server, lease, token)[0] for _ in range(10_000))
    assert next(status for status in statuses if status != 200) == 429
    done.touch()
    gamma.wait(job, timeout_s=90)

    def refusal() -> int | None:
        status, _ = post_secrets(server, lease, token)
        return None if status == 429 else status

    assert until(refusal) == 409


def test_the_next_lease_sees_a_changed_and_a_removed_secret(server: LiveServer) -> None:
    delta = client_of(server, "tenant", "delta")
    delta.ask("PUT", "/v1/secrets/TOKEN", {"value": "first of delta"})
    script = 'printf %s "$TOKEN" | sha256sum; trap "exit 0" TERM; while :; do sleep 0.05; done'
    job = delta.submit(["sh", "-c", script], workload="big", secrets=["TOKEN"], retries=0)["id"]

    def log() -> str:
        return delta.raw("GET", f"/v1/jobs/{job}/logs")[2].decode()

    def state(*expected: str) -> bool:
        return delta.job(job)["state"] in expected

    until(lambda: digest("first of delta") in log())
    delta.post(f"/v1/jobs/{job}/suspend")
    until(lambda: state("suspended") and delta.job(job)["devices"] == 0)
    delta.ask("PUT", "/v1/secrets/TOKEN", {"value": "second of delta"})
    delta.post(f"/v1/jobs/{job}/resume")
    until(lambda: digest("second of delta") in log())
    delta.post(f"/v1/jobs/{job}/suspend")
    until(lambda: state("suspended") and delta.job(job)["devices"] == 0)
    delta.ask("DELETE", "/v1/secrets/TOKEN")
    delta.post(f"/v1/jobs/{job}/resume")
    until(lambda: state("failed"))
    assert "tenant 'delta' has no secret 'TOKEN'" in delta.job(job)["message"]


def test_bad_requests_are_refused_without_the_value(server: LiveServer) -> None:
    secret = "never-in-an-error"
    for path, body, problem in (
        ("TOKEN", {"value": f"{secret}\0"}, "value: null byte"),
        ("TOKEN", {"value": secret * 2000}, "value: too long: expected at most 32768"),
        ("TOKEN", {"value": "é" * 20_000}, "value: 40,000 bytes: expected at most 32,768"),
        ("TOKEN", {"value": ""}, "value: too short: expected 1 or more"),
        ("TOKEN", {"value": [secret]}, "value: not text: expected a string"),
        ("TOKEN", {"value": secret, "tenant": ""}, "tenant: "),
        ("TOKEN", {"secret": secret}, "value: missing: expected a value"),
        ("9A", {"value": secret}, "name: not the name of an environment variable: '9A'"),
        ("A-B", {"value": secret}, "name: not the name"),
        ("A" * 65, {"value": secret}, "name: not the name"),
    ):
        status, _, text = server.client.raw("PUT", f"/v1/secrets/{path}", body)
        assert status == 422, (path, text)
        assert problem in text.decode()
        assert secret not in text.decode()
    for secrets, problem in (
        (["1A"], "secrets: not a name: '1A'"),
        (["A="], "secrets: not a name: ''"),
        (["A=FAIRLEAD_URL"], "secrets: 'FAIRLEAD_URL' is reserved"),
        (["A", "B=A"], "secrets: two secrets for 'A'"),
        (["A=PATH"], "secrets: 'PATH' is also in environment"),
        (["MISSING"], "has no secret 'MISSING'"),
    ):
        job = {"command": ["true"], "workload": "big", "environment": {"PATH": "/bin"}}
        status, _, text = server.client.raw("POST", "/v1/jobs", {**job, "secrets": secrets})
        assert status == 422
        assert problem in text.decode()
    assert secret not in (server.root / "server.log").read_text()


def test_secrets_survive_a_restart_sealed_and_need_their_key(tmp_path: Path) -> None:
    stored: dict[str, str] = {}
    key_file = tmp_path / "secrets.key"
    secrets = load_job_secrets(stored, key_file)
    _, changes = secrets.set("a", "TOKEN", VALUE, at=1.0)
    stored |= {change.id: change.body for change in changes if isinstance(change, Put)}
    assert VALUE not in str(stored)
    assert load_job_secrets(stored, key_file).values("a", {"X": "TOKEN"}) == {"X": VALUE}
    moved = {"b/TOKEN": stored["a/TOKEN"].replace('"tenant": "a"', '"tenant": "b"')}
    with pytest.raises(SecretUnavailableError, match="damaged"):
        load_job_secrets(moved, key_file).values("b", {"X": "TOKEN"})
    key_file.unlink()
    without_key = load_job_secrets(stored, key_file)
    assert not without_key.is_readable(without_key.list()[0])
    with pytest.raises(InputError, match="sealed with another key"):
        without_key.require("a", ["TOKEN"])
    key_file.write_text("not a key")
    with pytest.raises(InputError, match=r"secrets\.key: not a key"):
        load_job_secrets(stored, key_file)


def test_a_tenant_has_a_limited_number_of_secrets() -> None:
    secrets = JobSecrets({}, b"k" * 32)
    for number in range(MAX_PER_TENANT):
        secrets.set("a", f"S{number}", "value", at=1.0)
    with pytest.raises(InputError, match="name: tenant 'a' has 100 secrets"):
        secrets.set("a", "MORE", "value", at=1.0)
    secrets.set("a", "S0", "changed", at=2.0)
    secrets.set("b", "MORE", "value", at=1.0)
    assert secrets.values("a", {"X": "S0"}) == {"X": "changed"}


def test_a_submission_names_a_bounded_number_of_secrets() -> None:
    with pytest.raises(InputError, match="secrets: 33 secrets: expected at most 32"):
        NewJob(command=("x",), secrets=tuple(f"S{i}" for i in range(33)))
