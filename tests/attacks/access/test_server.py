"""A running server with an OpenID Connect provider: logins, scopes, rotation, the audit trail."""

import base64
import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.oidc_provider import OidcProvider, answer_page

from fairlead.cli.client import oidc_login
from fairlead.cli.client.access import login
from fairlead.cli.client.oidc_login import SECRET_VARIABLE, LoginError
from fairlead.client import Client, ServerError
from fairlead.server.access.identity_provider import ProviderError, fetch_json

USERS: tuple[dict[str, Any], ...] = (
    {"sub": "ann", "tenant": "vision", "preferred_username": "Ann"},
    {"sub": "root", "groups": ["ops"]},
    {"sub": "nobody"},
)

CLIENTS: list[Client] = []
"""clients to close"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv(SECRET_VARIABLE, "any")  # this provider knows no public clients


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    made = OidcProvider(tmp_path_factory.mktemp("provider"), *USERS)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(
    provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("server"), round_s=30.0)
    made.extra = ("--oidc-issuer", provider.issuer, "--oidc-client-id", "fairlead")
    made.extra += (
        "--oidc-admin-group",
        "ops",
        "--allowed-hosts",
        "cluster.example.org",
        "--trust-jobs",
    )
    made.start()
    yield made
    made.clean_up()
    for client in CLIENTS:
        client.close()


def client_of(server: LiveServer, token: str) -> Client:
    CLIENTS.append(Client(f"http://127.0.0.1:{server.port}", token))
    return CLIENTS[-1]


def token_of(server: LiveServer, **settings: object) -> dict[str, Any]:
    made: dict[str, Any] = server.client.post("/v1/tokens", {"name": "test", **settings})
    return made


def denied_entries(server: LiveServer, actor: str, least: int = 1) -> list[dict[str, Any]]:
    """Return the audit trail once it holds denied attempts of an actor; they are stored late."""
    until = time.monotonic() + 90
    while True:
        entries: list[dict[str, Any]] = server.client.get("/v1/audit", limit=200)
        own = [e for e in entries if e["action"] == "denied" and e["actor"] == actor]
        if len(own) >= least:
            return entries
        assert time.monotonic() < until, entries[:5]
        time.sleep(0.05)


def log_in(
    server: LiveServer, user: str | None, home: Path, pages: list[str] | None = None
) -> str:
    """Return the token that a login at the provider has saved."""

    def open_page(page: str) -> None:
        if pages is not None:
            pages.append(page)
        answer_page(page, user)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_DATA", str(home))
        patch.setattr(webbrowser, "open", open_page)
        login(f"http://127.0.0.1:{server.port}", oidc=True)
    token: str = json.loads((home / "login.json").read_text())["token"]
    return token


def status_of(server: LiveServer, method: str, path: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_user_logs_in_at_the_provider_and_acts_for_a_tenant(
    server: LiveServer, provider: OidcProvider, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "login", f"http://127.0.0.1:{server.port}", "--oidc"],
        env={**os.environ, "BROWSER": provider.browser("ann"), "FAIRLEAD_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path = tmp_path / "login.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = json.loads(path.read_text())["token"]
    ann = client_of(server, token)
    job = ann.submit(["true"], workload="small")
    assert job["tenant"] == "vision"
    assert ann.raw("GET", "/v1/audit")[0] == 403
    entries = denied_entries(server, "oidc:ann")
    (submitted,) = [entry for entry in entries if entry["subject"] == job["id"]]
    author = {"who": "Ann", "role": "tenant", "actor": "oidc:ann", "action": "submit"}
    assert author.items() <= submitted.items()
    assert token not in (server.root / "server.log").read_text()
    forged = token[:-8] + ("A" * 8)
    assert client_of(server, forged).raw("GET", "/v1/jobs")[0] == 401


def test_a_login_proves_its_code_challenge(
    server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []
    forms: list[dict[str, list[str]]] = []

    def fetch(url: str, body: bytes | None = None) -> dict[str, Any]:
        forms.append(parse_qs((body or b"").decode()))
        return fetch_json(url, body)

    monkeypatch.setattr(oidc_login, "fetch_json", fetch)
    log_in(server, "ann", tmp_path, pages)
    query = parse_qs(urlsplit(pages[0]).query)
    digest = hashlib.sha256(forms[0]["code_verifier"][0].encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert query["code_challenge"] == [challenge]
    assert query["code_challenge_method"] == ["S256"]


def test_groups_make_an_admin_and_users_without_a_role_are_refused(
    server: LiveServer, tmp_path: Path
) -> None:
    assert client_of(server, log_in(server, "root", tmp_path)).get("/v1/tokens")
    other = tmp_path / "other"
    with pytest.raises(ServerError, match="expected a tenant, or a group with a role"):
        log_in(server, "nobody", other)
    with pytest.raises(LoginError, match="refused the login: access_denied"):
        log_in(server, None, other)
    assert not (other / "login.json").exists()


def test_new_keys_of_the_provider_are_found_and_tokens_work_without_it(
    server: LiveServer, provider: OidcProvider, tmp_path: Path
) -> None:
    provider.stop()
    provider.start()  # with a new key
    token, until = "", time.monotonic() + 90
    while not token:  # keys are fetched at most every 5 s
        try:
            token = log_in(server, "ann", tmp_path)
        except ServerError:  # unknown key
            assert time.monotonic() < until
            time.sleep(0.5)
    provider.stop()
    try:
        assert server.client.get("/v1/jobs") is not None
        assert client_of(server, token).raw("GET", "/v1/jobs")[0] == 200
        with pytest.raises(ProviderError, match="does not answer"):
            log_in(server, "ann", tmp_path)
    finally:
        provider.start()


def test_foreign_hosts_and_origins_are_refused(server: LiveServer) -> None:
    token = (server.data / "admin.token").read_text()
    own = {"Host": f"127.0.0.1:{server.port}", "Authorization": f"Bearer {token}"}
    evil = {**own, "Host": f"evil.example:{server.port}"}
    assert status_of(server, "GET", "/v1/jobs", own) == 200
    assert status_of(server, "GET", "/v1/jobs", {**own, "Host": "cluster.example.org"}) == 200
    assert status_of(server, "GET", "/v1/jobs", evil) == 421
    assert status_of(server, "POST", "/v1/leases/1/renew", evil) == 421
    assert status_of(server, "GET", "/healthz", evil) == 200
    site = {**own, "Origin": "https://evil.example"}
    assert status_of(server, "POST", "/v1/jobs/j1/cancel", site) == 403
    assert status_of(server, "DELETE", "/v1/tokens/x", {**own, "Origin": "null"}) == 403
    assert status_of(server, "DELETE", "/v1/tokens/x", own) == 404


def test_scopes_narrow_a_role_and_cannot_be_widened(server: LiveServer) -> None:
    reader = client_of(server, token_of(server, role="admin", scopes=["jobs:read"])["token"])
    assert reader.raw("GET", "/v1/jobs")[0] == 200
    status, _, body = reader.raw("GET", "/v1/nodes")
    assert status == 403
    assert "scope cluster:read: expected in the token's scopes (jobs:read)" in body.decode()
    denied = [
        ("POST", "/v1/jobs", {"command": ["true"], "workload": "small"}),
        ("GET", "/v1/tokens", None),
        ("GET", "/v1/audit", None),
        ("GET", "/metrics", None),
        ("PUT", "/v1/tenants/x", {"id": "x"}),
    ]
    for method, path, message in denied:
        assert reader.raw(method, path, message)[0] == 403, path
    issuer_scopes = ["access:read", "access:write"]
    issuer = token_of(server, role="admin", scopes=issuer_scopes)
    client = client_of(server, issuer["token"])
    wide = [{}, {"scopes": ["jobs:read"]}, {"scopes": [*issuer_scopes, "jobs:write"]}]
    for settings in wide:
        body_of = {"name": "wide", "role": "admin", **settings}
        assert client.raw("POST", "/v1/tokens", body_of)[0] == 403, settings
    narrow = {"name": "narrow", "role": "viewer", "scopes": ["access:read"]}
    assert client.raw("POST", "/v1/tokens", narrow)[0] == 201
    (admin,) = [row for row in server.client.get("/v1/tokens") if row["name"] == "admin"]
    assert client.raw("POST", f"/v1/tokens/{admin['id']}/rotate", {})[0] == 403
    with pytest.raises(ServerError, match="scopes"):
        token_of(server, role="admin", scopes=["everything"])


def test_rotation_replaces_the_secret_and_keeps_the_old_one_for_the_overlap(
    server: LiveServer,
) -> None:
    made = token_of(server, role="viewer")
    made_id = made["id"]
    rotated = server.cli("tokens", "rotate", made_id, "--overlap", 600)
    assert rotated.returncode == 0, rotated.stderr
    fresh = rotated.stdout.strip()
    for text in (made["token"], fresh):
        assert client_of(server, text).raw("GET", "/v1/jobs")[0] == 200
    path = f"/v1/tokens/{made_id}/rotate"
    again = server.client.post(path, {"overlap_s": 0})["token"]  # drops both others
    statuses = [
        client_of(server, text).raw("GET", "/v1/jobs")[0] for text in (made["token"], fresh, again)
    ]
    assert statuses == [401, 401, 200]
    for guess in (f"fl_{made_id}_", f"fl_{made_id}_{'-' * 64}", "fl__", "fl_"):
        assert client_of(server, guess).raw("GET", "/v1/jobs")[0] == 401
    row = next(row for row in server.client.get("/v1/tokens") if row["id"] == made_id)
    assert abs(row["last_used_at"] - time.time()) < 120
    shown = server.cli("tokens").stdout
    assert "scopes" in shown
    assert "last used" in shown
    assert server.client.raw("POST", "/v1/tokens/unknown/rotate", {})[0] == 404
    assert server.client.raw("POST", path, {"overlap_s": -1})[0] == 422


def test_the_audit_trail_has_old_and_new_values_and_no_secrets(server: LiveServer) -> None:
    server.client.ask("PUT", "/v1/tenants/vision", {"id": "vision", "weight": 1.0})
    server.client.ask("PUT", "/v1/tenants/vision", {"id": "vision", "weight": 3.0})
    job = server.client.submit(["sleep", "60"], workload="small", tenant="vision")["id"]
    server.client.ask("PATCH", f"/v1/jobs/{job}", {"priority": 7})
    made = token_of(server, role="tenant", tenant="vision", scopes=["jobs:read"])
    entries = json_output(server, "audit-trail")
    changed = {(e["action"], e["subject"]): e["changes"] for e in reversed(entries)}
    assert changed["tenant", "vision"]["weight"] == {"old": 1.0, "new": 3.0}
    assert changed["change", job]["priority"] == {"old": 0, "new": 7}
    assert changed["token", made["id"]]["scopes"] == {"old": None, "new": ["jobs:read"]}
    assert all(entry["role"] for entry in entries if entry["action"] != "denied")
    assert made["token"].split("_", 2)[2] not in json.dumps(entries)
    assert "weight: 1.0 → 3.0" in server.cli("audit-trail", "--limit", 10).stdout.replace("\n", "")
    server.client.post(f"/v1/jobs/{job}/cancel")


def test_denied_attempts_are_recorded_but_cannot_flood_the_trail(server: LiveServer) -> None:
    made = token_of(server, role="viewer")
    viewer = client_of(server, made["token"])
    hostile = f"/v1/tokens/fl_0123456789ab_s3cret%00%0a%1b[2J{'x' * 500}"
    for _ in range(60):
        assert viewer.raw("DELETE", hostile)[0] == 403
    entries = denied_entries(server, made["id"], least=5)
    own = [entry for entry in entries if entry["actor"] == made["id"]]
    assert 5 <= len(own) <= 20
    assert {"who": "test", "role": "viewer", "action": "denied"}.items() <= own[0].items()
    assert own[0]["subject"].startswith("DELETE /v1/tokens/fl_…")
    assert own[0]["subject"].isprintable()
    assert len(own[0]["subject"]) <= 200
    assert server.client.get("/v1/jobs") is not None


def test_a_changed_trail_is_noticed_by_the_command_and_at_start(server: LiveServer) -> None:
    verified = server.cli("audit-trail", "verify")
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.startswith("intact: ")
    server.stop()
    with sqlite3.connect(server.data / "fairlead.db") as database:
        database.execute("UPDATE audit SET subject = 'j99' WHERE seq = 3")
    database.close()
    server.start()
    log = server.root / "server.log"
    until = time.monotonic() + 90
    while "audit.broken" not in log.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    broken = server.cli("audit-trail", "verify")
    assert broken.returncode == 1
    assert "broken: entry 3" in broken.stderr
    assert server.client.get("/v1/jobs") is not None  # the server works nevertheless
