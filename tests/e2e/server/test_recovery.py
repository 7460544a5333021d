"""Recovery time of a killed server with thousands of jobs, and of its standby."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.trained_line import check_result
from tests.support import postgres
from tests.support.postgres import Postgres

from fairlead.core import encode_event
from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.store import Put, Store

JOBS = 2000
BACK_S, TAKES_OVER_S = 4.0, 10.0
"""three seconds on quiet cores, which are slower beside other tests; see ``Stopwatch``"""


def _fill(server: LiveServer) -> None:
    """Write the store of a server with many submitted jobs."""
    server.data.mkdir()
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    token = store.acquire("test")
    assert token is not None
    specs = [
        JobSpec(command=("sleep", "60"), workload=("big", "small")[n % 2], steps=10**6, id=f"j{n}")
        for n in range(1, JOBS + 1)
    ]
    at = time.time()
    events = [encode_event(ev.JobSubmitted(at, spec.job(at))) for spec in specs]
    store.append(token, 1, events, [Put("job", spec.id, spec.document()) for spec in specs])
    store.close()


class Stopwatch:
    """Seconds since its start, without those in which a server or this test waited for a core."""

    def __init__(self, *running: int) -> None:
        """Start, with the processes that already run."""
        self._began = time.monotonic()
        self._waited = {pid: _waited_s(pid) for pid in (os.getpid(), *running)}

    def taken_s(self, server: int) -> float:
        waited = [_waited_s(pid) - self._waited.get(pid, 0.0) for pid in (os.getpid(), server)]
        return time.monotonic() - self._began - sum(waited)


def _waited_s(pid: int) -> float:
    """Return the time that the first thread of a process waited for a core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def test_a_killed_server_with_two_thousand_jobs_is_back_within_seconds(
    tmp_path: Path,
) -> None:
    server = LiveServer(tmp_path, devices="v100=4,k80=4", round_s=1.0)
    server.forks = False
    _fill(server)
    took = []
    try:
        server.start()
        for _ in range(3):
            time.sleep(2.0)  # several rounds with plans for all of these jobs
            server.kill()
            watch = Stopwatch()
            server.start()
            assert server.process is not None
            took.append(watch.taken_s(server.process.pid))
            assert len(server.client.get("/v1/jobs", limit=10_000)) == JOBS
    finally:
        server.clean_up()
    assert min(took) <= BACK_S, took


@pytest.fixture
def database() -> Iterator[str]:
    if postgres.missing():
        pytest.skip(postgres.missing())
    made = Postgres()
    yield made.database()
    made.stop()


def test_a_standby_server_takes_over_without_disturbing_jobs(
    tmp_path: Path, database: str
) -> None:
    first = LiveServer(tmp_path)
    first.extra = ("--database", database)
    second = LiveServer(tmp_path)
    second.extra, second.port = (*first.extra, "--standby", "120"), first.port
    try:
        first.start()
        command = [sys.executable, str(tmp_path / "train.py"), "500", str(tmp_path / "out")]
        job = first.client.submit(command, workload="big", steps=500)["id"]
        second.launch()
        while "standby" not in (tmp_path / "server.log").read_text():
            time.sleep(0.1)
        first.kill()
        assert second.process is not None
        watch = Stopwatch(second.process.pid)
        second.wait_until_up()
        took = watch.taken_s(second.process.pid)
        done = second.client.wait(job, timeout_s=120)
    finally:
        second.clean_up()
        first.clean_up()
    assert took <= TAKES_OVER_S
    assert (done["state"], done["steps_done"], done["failures"]) == ("finished", 500, 0)
    check_result(tmp_path / "out.0", 500)
