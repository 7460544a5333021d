"""DNS rebinding and cross-site requests: headers Host and Origin of other sites are refused."""

import asyncio
import os
import time
from typing import Any

import pytest

from fairlead.server.access.hosts import AllowedHosts, HostMiddleware

NODE = os.uname().nodename


async def inner(scope: Any, _: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def status(
    hosts: AllowedHosts,
    headers: list[tuple[str, str]],
    method: str = "GET",
    path: str = "/v1/jobs",
) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    asyncio.run(HostMiddleware(inner, hosts)(scope, receive, send))
    number: int = sent[0]["status"]
    return number


LOCAL = AllowedHosts("127.0.0.1", ("cluster.example.org", ""))
ANYWHERE = AllowedHosts("0.0.0.0")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8642",
        "localhost:1",
        "LOCALHOST:8642",
        "localhost.",
        "[::1]:8642",
        NODE,
        f"{NODE}:8642",
        "cluster.example.org",
        "Cluster.Example.org:443",
    ],
)
def test_own_names_are_accepted(host: str) -> None:
    assert status(LOCAL, [("host", host)]) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#127.0.0.1",
        "evil.example/127.0.0.1",
        "127.0.0.1@evil.example",
        "evil.example@127.0.0.1",
        "evil.example\\127.0.0.1",
        "127.0.0.1, evil.example",
        "example.org",
        "x.cluster.example.org",
        "10.1.2.3",
        "127.0.0.1:99999",
        "127.0.0.1:x",
        "[::1",
        "",
        " ",
        "\xff",
        "0.0.0.0",
    ],
)
def test_other_hosts_are_refused(host: str) -> None:
    assert status(LOCAL, [("host", host)]) == 421
    assert status(LOCAL, [("host", host)], "POST", "/v1/leases/1/renew") == 421


def test_missing_and_repeated_hosts_are_refused() -> None:
    assert status(LOCAL, []) == 421
    assert status(LOCAL, [("host", "localhost"), ("host", "evil.example")]) == 421


def test_a_server_on_every_address_accepts_addresses_but_no_other_names() -> None:
    assert status(ANYWHERE, [("host", "10.1.2.3:8642")]) == 200
    assert status(ANYWHERE, [("host", "[fe80::1]:8642")]) == 200
    assert status(ANYWHERE, [("host", "evil.example")]) == 421
    assert status(ANYWHERE, [("host", "10.1.2.3.evil.example")]) == 421
    assert status(AllowedHosts("127.0.0.1", ("*",)), [("host", "any.example")]) == 200


def test_health_checks_name_any_host() -> None:
    for path in ("/healthz", "/readyz"):
        assert status(LOCAL, [("host", "10.9.8.7")], path=path) == 200
    assert status(LOCAL, [("host", "10.9.8.7")], path="/metrics") == 421
    assert status(LOCAL, [("host", "10.9.8.7")], path="/healthz/../v1/jobs") == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PURGE"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost:3000",
        "http://localhost",
        "http://localhost:8642.evil.example",
        "http://evil.example/localhost:8642",
        "http://localhost:8642@evil.example",
        "file://localhost:8642",
        "http://[",
        "",
    ],
)
def test_changes_for_pages_of_other_sites_are_refused(method: str, origin: str) -> None:
    headers = [("host", "localhost:8642"), ("origin", origin)]
    assert status(LOCAL, headers, method) == 403


def test_own_pages_and_reading_are_accepted() -> None:
    own = [("host", "localhost:8642"), ("origin", "http://localhost:8642")]
    assert status(LOCAL, own, "POST") == 200
    proxied = [("host", "127.0.0.1:8642"), ("origin", "https://cluster.example.org")]
    assert status(LOCAL, proxied, "POST") == 200
    foreign = [("host", "localhost:8642"), ("origin", "https://evil.example")]
    assert status(LOCAL, foreign, "GET") == 200
    assert status(LOCAL, [*foreign, ("cookie", "a=b")], "GET") == 403


def test_the_check_is_cheap_and_remembers_a_bounded_number_of_headers() -> None:
    hosts = AllowedHosts("127.0.0.1")
    began = time.process_time()
    for _ in range(100_000):
        hosts.accepts(b"127.0.0.1:8642")
    assert time.process_time() - began < 2.0  # 0.2 µs each; a renewal takes more than 100 µs
    for port in range(1, 5000):
        assert hosts.accepts(b"127.0.0.1:%d" % port)
    assert len(hosts._accepted) <= 1000
