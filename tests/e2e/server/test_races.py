"""Concurrent and invalid requests to a real server."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer

from fairlead.client import Client, ServerError


def request(server: LiveServer, method: str, path: str, body: dict[str, object]) -> int:
    """Send a request over a new connection and return the status."""
    client = Client(f"http://127.0.0.1:{server.port}", (server.data / "admin.token").read_text())
    try:
        return client.raw(method, path, body)[0]
    finally:
        client.close()


def test_concurrent_changes_make_no_cycle_of_tenants_and_none_is_lost(
    own_server: LiveServer,
) -> None:
    server = own_server.start()
    job = server.client.submit(["sleep", "60"], workload="small")["id"]
    with ThreadPoolExecutor(2) as pool:
        for turn in range(10):
            pair = [f"a{turn}", f"b{turn}"]
            for name in pair:
                assert request(server, "PUT", f"/v1/tenants/{name}", {"id": name}) == 200
            parents = [
                pool.submit(
                    request, server, "PUT", f"/v1/tenants/{child}", {"id": child, "parent": parent}
                )
                for child, parent in (pair, pair[::-1])
            ]
            assert sorted(future.result() for future in parents) == [200, 422]
            changes: list[dict[str, object]] = [{"weight": turn + 2.0}, {"priority": turn}]
            for future in [
                pool.submit(request, server, "PATCH", f"/v1/jobs/{job}", c) for c in changes
            ]:
                assert future.result() == 200
            view = server.client.job(job)
            assert (view["weight"], view["priority"]) == (turn + 2.0, turn)
    assert server.client.get("/v1/shares")


def test_the_last_valid_admin_token_cannot_be_revoked(own_server: LiveServer) -> None:
    admin = own_server.start().client
    admin.post("/v1/tokens", {"name": "brief", "role": "admin", "lasts_s": 0.2})
    time.sleep(0.3)
    own = next(token["id"] for token in admin.get("/v1/tokens") if token["name"] == "admin")
    assert admin.raw("DELETE", f"/v1/tokens/{own}")[0] == 409
    admin.post("/v1/tokens", {"name": "later", "role": "admin", "lasts_s": 3600})
    assert admin.raw("DELETE", f"/v1/tokens/{own}")[0] == 409
    admin.post("/v1/tokens", {"name": "permanent", "role": "admin"})
    assert admin.raw("DELETE", f"/v1/tokens/{own}")[0] == 204


def test_a_new_database_beside_an_old_token_file_gets_a_new_token(
    own_server: LiveServer, tmp_path: Path
) -> None:
    own_server.start()
    before = (own_server.data / "admin.token").read_text()
    own_server.stop()
    own_server.extra = ("--database", f"sqlite:///{tmp_path}/other.db")
    own_server.launch()
    until = time.monotonic() + 90
    while (own_server.data / "admin.token").read_text() == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    same = LiveServer(tmp_path)  # its client has not read the old token
    same.port, same.process = own_server.port, own_server.process
    assert same.wait_until_up().client.get("/v1/jobs") == []
    same.client.close()


@pytest.mark.parametrize(
    "invalid", [{"command": ["echo", "a\0"]}, {"environment": {"A=B": "1"}}, {"directory": "/\0"}]
)
def test_a_command_environment_or_directory_that_no_process_accepts_is_refused(
    own_server: LiveServer, invalid: dict[str, object]
) -> None:
    client = own_server.start().client
    with pytest.raises(ServerError, match=f"^{next(iter(invalid))}: "):
        client.post("/v1/jobs", {"command": ["echo"], "workload": "small", **invalid})
    assert client.get("/v1/jobs") == []


def test_a_limited_list_of_jobs_holds_the_oldest_or_the_newest(own_server: LiveServer) -> None:
    client = own_server.start().client
    made = [client.submit(["sleep", "60"], workload="small")["id"] for _ in range(5)]
    assert [job["id"] for job in client.get("/v1/jobs", newest=True, limit=2)] == made[-2:]
    assert [job["id"] for job in client.get("/v1/jobs", limit=2)] == made[:2]


def test_an_endless_renewal_is_refused(own_server: LiveServer) -> None:
    own_server.start()
    connection = http.client.HTTPConnection("127.0.0.1", own_server.port, timeout=60)
    body = (b"x" * (1 << 16) for _ in range(1 << 10))
    try:
        connection.request("POST", "/v1/leases/1/renew", body, encode_chunked=True)
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):  # the server did not read to the end
        status = connection.getresponse().status
    finally:
        connection.close()
    assert status == 413
