"""A live server explains, advises and shows its instance while its planner works."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from time import monotonic, sleep

import pytest
from tests.e2e.support.live_server import LiveServer

from fairlead.client import Client, job_path
from fairlead.store import Store

N_JOBS = 64
N_WORKLOADS = 12
TURNS = 24
"""requests of each thread"""
PATIENCE_S = 90.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """Start a server with four emulated devices and rounds of one second."""
    server = LiveServer(tmp_path, devices="v100=2,k80=2", round_s=1.0)
    speeds = [
        f"w{i},{gang},{kind},{gang * (i + 2) * factor}"
        for i in range(N_WORKLOADS)
        for gang in (1, 2)
        for kind, factor in (("v100", 1.0 + i / 3), ("k80", 1.0))
    ]
    table = "\n".join(["workload,gang,accelerator,steps_per_s", *speeds, ""])
    (tmp_path / "speeds.csv").write_text(table)
    try:
        yield server.start()
    finally:
        server.clean_up()


def connect(server: LiveServer) -> Client:
    """Return a client with a connection of its own."""
    return Client(f"http://127.0.0.1:{server.port}", (server.data / "admin.token").read_text())


def submit(client: Client, number: int) -> str:
    """Submit a job that sleeps, of one of many classes; return its id."""
    job = client.submit(
        ["sleep", "600"],
        workload=f"w{number % N_WORKLOADS}",
        gang=2 if number % 5 == 0 else 1,
        weight=1.0 + number % 3,
        steps=10**6,
    )
    return str(job["id"])


def last_decision(server: LiveServer) -> int:
    """Return the number of the last plan in the event log; 0 if the log was just compacted."""
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    try:
        events = [json.loads(record.body) for record in store.load_events(0)]
    finally:
        store.close()
    return max((event["version"] for event in events if event["is"] == "PlanReady"), default=0)


def wait_for_decision(server: LiveServer, number: int) -> None:
    """Return when the server has made that many plans; fail after ``PATIENCE_S``."""
    until = monotonic() + PATIENCE_S
    while last_decision(server) < number:
        assert monotonic() < until, f"no plan {number}: {server_log(server)[-2000:]}"
        sleep(0.1)


def server_log(server: LiveServer) -> str:
    return (server.root / "server.log").read_text()


def test_a_server_survives_insight_requests_beside_its_rounds(server: LiveServer) -> None:
    jobs = [submit(server.client, number) for number in range(N_JOBS)]
    start = Barrier(7, timeout=PATIENCE_S)

    def get(path: Callable[[int], str]) -> set[int]:
        with closing(connect(server)) as client:
            start.wait()
            return {client.raw("GET", path(turn))[0] for turn in range(TURNS)}

    def change_jobs() -> set[int]:
        """Make every plan solve from scratch."""
        with closing(connect(server)) as client:
            start.wait()
            new = (submit(client, turn) for turn in range(TURNS))
            return {client.raw("POST", job_path(job, "cancel"))[0] for job in new}

    def audit() -> set[int]:
        start.wait()
        return {server.cli("audit", "--live", "--json").returncode}

    wait_for_decision(server, 1)
    before = last_decision(server)
    with ThreadPoolExecutor(start.parties) as pool:
        answers = {
            "explain first jobs": pool.submit(get, lambda turn: job_path(jobs[turn], "explain")),
            "explain last jobs": pool.submit(get, lambda turn: job_path(jobs[~turn], "explain")),
            "advise": pool.submit(get, lambda _: "/v1/advice"),
            "advise again": pool.submit(get, lambda _: "/v1/advice"),
            "show the instance": pool.submit(get, lambda _: "/v1/instance"),
            "change jobs": pool.submit(change_jobs),
            "audit": pool.submit(audit),
        }
    assert server.process is not None
    assert server.process.poll() is None, server_log(server)[-2000:]
    statuses = {name: answer.result() for name, answer in answers.items()}
    assert statuses == {name: {0} if name == "audit" else {200} for name in answers}
    wait_for_decision(server, before + 5)
    assert server.client.raw("GET", "/healthz")[0] == 200
    assert server.process.poll() is None, server_log(server)[-2000:]
    assert "plan.failed" not in server_log(server)
