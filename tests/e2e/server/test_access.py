"""Authorization: every route of the API against every role."""

import json
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.route_table import BODIES, EXPECTED, QUERIES, ROLES

from fairlead.client import Client, ServerError
from fairlead.server.access.scopes import SCOPES, required_scope
from fairlead.server.api.job_messages import State


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("access"), round_s=30.0)
    made.extra = ("--trust-jobs",)
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def clients(server: LiveServer) -> Iterator[dict[str, Client]]:
    url, admin = f"http://127.0.0.1:{server.port}", server.client
    clients = {"admin": admin}
    for role, tenant in (("own", "own"), ("other", "other"), ("viewer", None)):
        token_role = "viewer" if tenant is None else "tenant"
        made = admin.post("/v1/tokens", {"name": role, "role": token_role, "tenant": tenant})
        clients[role] = Client(url, made["token"])
    job = admin.submit(["sleep", "60"], workload="small", tenant="own", retries=0)["id"]
    lease = _lease_token(server, job)
    clients["lease"] = Client(url, lease)
    clients["invalid"] = Client(url, "fl_0123_nonsense")
    yield clients
    for client in clients.values():
        client.close()


def _lease_token(server: LiveServer, job: str) -> str:
    while True:
        for path in (server.data / "leases").glob("*/order.json"):
            order = json.loads(path.read_text())
            if order["job"] == job:
                server.lease = order["lease"]
                token: str = order["environment"]["FAIRLEAD_JOB_TOKEN"]
                server.client.post(f"/v1/jobs/{job}/cancel")
                server.client.wait(job, timeout_s=90)
                while path.parent.exists():
                    time.sleep(0.02)
                return token


def test_every_route_is_in_the_table(server: LiveServer) -> None:
    schema = server.client.get("/openapi.json")
    routes = {
        f"{method.upper()} {path}" for path, verbs in schema["paths"].items() for method in verbs
    }
    assert routes == set(EXPECTED)


@pytest.mark.parametrize("route", EXPECTED)
def test_a_route_answers_each_role_as_in_the_table(
    server: LiveServer, clients: dict[str, Client], route: str
) -> None:
    admin = clients["admin"]
    job = admin.submit(["sleep", "60"], workload="small", tenant="own", retries=0)["id"]
    method, _, path = route.partition(" ")
    statuses = []
    for role in ROLES:
        token = admin.post("/v1/tokens", {"name": "gone", "role": "viewer"})["id"]
        filled = path.format(
            job_id=job,
            lease=server.lease,
            tenant_id="new",
            name="API_KEY",
            node="node-0" if "{node}" not in path else _node(admin),
            token_id=token,
            id_="0" * 64,
            snapshot_id="0" * 64,
        )
        filled += QUERIES.get(route, "")
        statuses.append(_request(clients[role], method, filled, BODIES.get(route)))
    admin.raw("POST", f"/v1/jobs/{job}/cancel")
    expected = [status if isinstance(status, int) else 200 for status in EXPECTED[route]]
    assert statuses == expected, dict(zip(ROLES, statuses, strict=True))


def _node(admin: Client) -> str:
    node: str = admin.get("/v1/nodes")[0]["id"]
    return node


def _request(client: Client, method: str, path: str, body: dict[str, object] | None) -> int:
    if path == "/v1/events":  # an endless response: its status suffices
        url = client._url
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        connection.request(method, path, headers={"Authorization": f"Bearer {client._token}"})
        status = connection.getresponse().status
        connection.close()
        return status
    status, _, _ = client.raw(method, path, body)
    return 200 if status < 300 else status


def test_the_timeline_hides_jobs_of_others_and_refuses_impossible_windows(
    clients: dict[str, Client],
) -> None:
    job = clients["own"].submit(["sleep", "60"], workload="small", retries=0)["id"]
    seen = {role: clients[role].get("/v1/timeline") for role in ("admin", "own", "other")}
    assert min(seen["admin"]["runs"]["job"]) >= 0
    assert seen["admin"]["jobs"]["tenant"] == seen["own"]["jobs"]["tenant"]
    assert set(seen["own"]["jobs"]["tenant"]) == {"own"}
    assert seen["other"]["jobs"]["id"] == []
    assert set(seen["other"]["runs"]["job"]) == {-2}
    shares = {role: clients[role].get("/v1/shares/history") for role in ("own", "other")}
    clients["own"].post(f"/v1/jobs/{job}/cancel")
    assert [each["tenant"] for each in shares["own"]["tenants"]] == ["own"]
    assert shares["other"]["tenants"] == []
    for query, problem in (
        ("from=1790000000.5&to=1790000001", "from: 1790000000.5 is too late for a window until"),
        ("from=0&to=9e9", "from: 104166.7 days are too long: expected at most 35 days"),
        ("columns=2000&limit=5000", "columns: 2000 columns of 5000 devices are too many"),
        ("from=nan", "from: "),
    ):
        status, _, body = clients["admin"].raw("GET", f"/v1/timeline?{query}")
        assert (status, problem in body.decode()) == (422, True), body
    status, _, body = clients["admin"].raw("POST", "/v1/what-if", {"devices": {"tpu": 1}})
    assert (status, b"devices: no accelerator 'tpu'" in body) == (422, True)


def test_tenants_see_their_own_jobs_only(clients: dict[str, Client]) -> None:
    job = clients["own"].submit(["true"], workload="small")
    assert job["tenant"] == "own"
    assert {seen["tenant"] for seen in clients["own"].get("/v1/jobs")} == {"own"}
    assert clients["other"].get("/v1/jobs") == []
    assert job["id"] in {seen["id"] for seen in clients["viewer"].get("/v1/jobs")}


def test_a_tenant_can_see_but_not_change_jobs_that_an_admin_shares_with_it(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    job = clients["own"].submit(["sleep", "60"], workload="small")["id"]
    shown = server.cli("tokens", "make", "friend", "--tenant", "other", "--sees", "own", "--json")
    made = json.loads(shown.stdout)
    assert made["sees"] == ["own"]
    friend = Client(f"http://127.0.0.1:{server.port}", made["token"])
    assert job in {seen["id"] for seen in friend.get("/v1/jobs")}
    assert friend.raw("GET", f"/v1/jobs/{job}/logs")[0] == 200
    assert friend.raw("POST", f"/v1/jobs/{job}/cancel")[0] == 403
    friend.close()
    clients["own"].post(f"/v1/jobs/{job}/cancel")


def test_revoked_and_expired_tokens_are_refused(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    admin, url = clients["admin"], f"http://127.0.0.1:{server.port}"
    for made in (
        admin.post("/v1/tokens", {"name": "short", "role": "viewer", "lasts_s": 1e-3}),
        admin.post("/v1/tokens", {"name": "revoked", "role": "viewer"}),
    ):
        if made["expires_at"] is None:
            admin.ask("DELETE", f"/v1/tokens/{made['id']}")
        client = Client(url, made["token"])
        assert client.raw("GET", "/v1/jobs")[0] == 401
        client.close()


def test_an_event_stream_ends_when_its_token_is_revoked(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    admin, seen = clients["admin"], list[str]()
    made = admin.post("/v1/tokens", {"name": "follower", "role": "viewer"})
    follower = Client(f"http://127.0.0.1:{server.port}", made["token"])
    thread = threading.Thread(
        target=lambda: seen.extend(str(event.get("job")) for event in follower.events()),
        daemon=True,
    )
    thread.start()
    until = time.monotonic() + 90
    while not seen and time.monotonic() < until:
        admin.submit(["true"], workload="small", tenant="own")
        time.sleep(0.2)
    assert seen
    admin.ask("DELETE", f"/v1/tokens/{made['id']}")
    after = admin.submit(["true"], workload="small", tenant="own")["id"]
    thread.join(30)
    assert not thread.is_alive()
    assert after not in seen


@pytest.mark.parametrize(("count", "status"), [(1000, 409), (1001, 422)])
def test_a_renewal_holds_at_most_a_thousand_metrics(
    server: LiveServer, clients: dict[str, Client], count: int, status: int
) -> None:
    renewal = {
        "rank": 0,
        "started": 0,
        "steps": 0,
        "metrics": {f"m{i}": 1.0 for i in range(count)},
    }
    answer = clients["lease"].raw("POST", f"/v1/leases/{server.lease}/renew", renewal)
    assert answer[0] == status, answer


def test_secrets_appear_in_no_listing_log_or_process_list(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    secrets = [(server.data / "admin.token").read_text(), clients["own"]._token]
    secrets.append(clients["lease"]._token)
    shown = subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True).stdout
    arguments = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    listed = json.dumps([clients["admin"].get(path) for path in ("/v1/tokens", "/v1/jobs")])
    log = (server.root / "server.log").read_text()
    database = b"".join(path.read_bytes() for path in server.data.glob("fairlead.db*"))
    for secret in secrets:
        assert secret not in arguments
        assert secret not in listed
        assert secret not in log
    assert secrets[0] not in shown
    assert secrets[0].split("_", 2)[2].encode() not in database
    for name in ("admin.token", "server.json"):
        assert stat.S_IMODE((server.data / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((server.data / "leases").stat().st_mode) == 0o700


def test_a_session_needs_cookie_and_key_and_follows_its_token(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    made = clients["admin"].post(
        "/v1/tokens", {"name": "page", "tenant": "own", "scopes": ["jobs:read"]}
    )
    status, cookie, view = _ask(server, "POST", "/v1/session", body={"token": made["token"]})
    assert (status, view["role"], view["tenant"]) == (201, "tenant", "own")
    assert view["scopes"] == ["jobs:read"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    pair, key = cookie.partition(";")[0], view["key"]
    both = {"Cookie": pair, "Fairlead-Key": key}
    assert _ask(server, "GET", "/v1/jobs", both)[0] == 200
    assert _ask(server, "GET", "/v1/session", both)[0] == 200
    assert _ask(server, "GET", "/v1/nodes", both)[0] == 403  # its scopes hold
    for headers in ({"Cookie": pair}, {"Fairlead-Key": key}, {**both, "Fairlead-Key": "é" * 44}):
        assert _ask(server, "GET", "/v1/jobs", headers)[0] == 401, headers
    # A page of another site, though its browser sends the cookie.
    for origin in ("http://evil.example", f"http://127.0.0.1:{server.port + 1}", "null"):
        assert _ask(server, "GET", "/v1/jobs", {**both, "Origin": origin})[0] == 403
    clients["admin"].raw("DELETE", f"/v1/tokens/{made['id']}")
    assert _ask(server, "GET", "/v1/jobs", both)[0] == 401


def test_a_form_of_another_site_changes_nothing_though_bodies_need_no_type(
    server: LiveServer, clients: dict[str, Client]
) -> None:
    token = (server.data / "admin.token").read_text().strip()
    _, cookie, view = _ask(server, "POST", "/v1/session", body={"token": token})
    job: dict[str, object] = {"command": ["true"], "workload": "small", "name": "typeless"}
    for body_type in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        form = {"Content-Type": body_type, "Cookie": cookie.partition(";")[0]}
        assert _ask(server, "POST", "/v1/jobs", form, job)[0] == 401
        page = {**form, "Fairlead-Key": view["key"]}
        evil = {**page, "Origin": "http://evil.example"}
        assert _ask(server, "POST", "/v1/jobs", evil, job)[0] == 403
        stolen = {"Content-Type": body_type, "Origin": "http://evil.example"}
        assert _ask(server, "POST", "/v1/session", stolen, {"token": token})[0] == 403
        assert clients["admin"].get("/v1/jobs", name="typeless") == []
    bearer = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Authorization": f"Bearer {token}",
    }
    assert _ask(server, "POST", "/v1/jobs", bearer, job)[0] == 201


def _ask(
    server: LiveServer,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: dict[str, object] | None = None,
) -> tuple[int, str, Any]:
    """Return status, cookie and JSON of a response."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    content = None if body is None else json.dumps(body)
    connection.putrequest(method, path)
    for name, value in (headers or {}).items():
        connection.putheader(name, value.encode("latin-1"))
    if "Content-Type" not in (headers or {}):
        connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(content or "")))
    connection.endheaders((content or "").encode())
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, response.headers.get("Set-Cookie", ""), answer


def test_jobs_are_searched_ordered_and_paged(clients: dict[str, Client]) -> None:
    own, names = clients["own"], ["page-b", "page-C", "page-a"]
    for priority, name in enumerate(names):
        own.submit(["true"], workload="small", name=name, priority=priority)

    def listed(**query: object) -> list[str]:
        return [job["name"] for job in own.get("/v1/jobs", search="PAGE-", **query)]

    assert listed() == names
    assert listed(descending=True) == names[::-1]
    assert listed(sort="name") == ["page-a", "page-b", "page-C"]
    assert listed(sort="name", descending=True, offset=1, limit=1) == ["page-b"]
    assert listed(sort="priority", descending=True) == names[::-1]
    assert listed(newest=True, limit=2) == names[1:]
    states = [job["state"] for job in own.get("/v1/jobs", sort="state", descending=True)]
    assert states == sorted(states, key=get_args(State).index, reverse=True)
    assert clients["other"].get("/v1/jobs", search="page-") == []
    status, headers, _ = own.raw("GET", "/v1/jobs?search=page-&limit=1&count=true")
    assert (status, headers["fairlead-total"]) == (200, "3")
    assert own.raw("GET", "/v1/jobs?newest=true&sort=name")[0] == 422
    with pytest.raises(ServerError, match="limits: unknown parameter: expected one of state, "):
        own.get("/v1/jobs", limits=1)
    with pytest.raises(ServerError, match="since: unknown parameter: expected none"):
        own.get("/v1/events", since=1)


def test_devices_show_the_jobs_that_a_token_may_see(clients: dict[str, Client]) -> None:
    job = clients["own"].submit(["sleep", "60"], workload="small")["id"]
    until = time.monotonic() + 90
    held: list[dict[str, Any]] = []
    while not held:
        assert time.monotonic() < until
        nodes = clients["own"].get("/v1/nodes/devices")
        held = [d for node in nodes for d in node["devices"] if d["jobs"] == [job]]
    assert (held[0]["state"], held[0]["tenant"]) == ("held", "own")
    others = [d for node in clients["other"].get("/v1/nodes/devices") for d in node["devices"]]
    assert "held" in [device["state"] for device in others]
    assert {(device["tenant"], *device["jobs"]) for device in others} == {(None,)}
    clients["own"].post(f"/v1/jobs/{job}/cancel")


def test_every_change_is_in_the_audit_trail(clients: dict[str, Client]) -> None:
    job = clients["own"].submit(["true"], workload="small")["id"]
    lines = clients["admin"].get("/v1/audit")
    submitted = next(line for line in lines if line["subject"] == job)
    expected = {"who": "own", "role": "tenant", "action": "submit"}
    assert expected.items() <= submitted.items()
    assert submitted["actor"] in {row["id"] for row in clients["admin"].get("/v1/tokens")}


@pytest.mark.parametrize("route", [route for route in EXPECTED if "/v1/" in route])
def test_every_route_with_a_token_has_a_scope(route: str) -> None:
    method, _, path = route.partition(" ")
    without_scopes = ("/v1/leases", "/v1/oidc", "/v1/session")
    assert path.startswith(without_scopes) or required_scope(method, path) in SCOPES


def test_serve_refuses_to_listen_beyond_loopback_without_tls(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    refused = server.cli(
        "serve", "--host", "0.0.0.0", "--data", server.data, "--emulate", "v100=1"
    )  # fmt: skip
    assert refused.returncode == 2
    assert "tls" in refused.stderr
