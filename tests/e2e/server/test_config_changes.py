"""A real server restarted with another policy, round length or speeds table."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import SPEEDS, LiveServer
from tests.e2e.support.trained_line import check_result

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=1,k80=2")
    yield made
    made.clean_up()


def submit(server: LiveServer, count: int, steps: int) -> list[str]:
    train = str(server.root / "train.py")
    ids = []
    for number in range(count):
        job = server.client.post(
            "/v1/jobs",
            {
                "command": [sys.executable, train, str(steps), str(server.root / f"out{number}")],
                "workload": ("big", "small")[number % 2],
                "steps": steps,
            },
        )
        ids.append(job["id"])
    return ids


def test_jobs_continue_when_each_start_uses_another_policy(server: LiveServer) -> None:
    server.extra = ("--policy", "gandiva-fair")
    server.start()
    ids = submit(server, 4, 400)
    for round_s, policy in ((3.0, "max-min"), (2.0, "hadar"), (2.0, "gandiva")):
        before = sum(server.client.job(job)["steps_done"] for job in ids)
        until = time.monotonic() + 60
        while sum(server.client.job(job)["steps_done"] for job in ids) < before + 40:
            assert time.monotonic() < until, "no progress"
            time.sleep(0.1)
        server.kill()
        server.round_s, server.extra = round_s, ("--policy", policy)
        server.start()
        assert server.client.get("/v1/about")["policy"] == policy
    for number, job_id in enumerate(ids):
        job = server.client.wait(job_id, timeout_s=90)
        assert (job["state"], job["steps_done"]) == ("finished", 400)
        check_result(server.root / f"out{number}.0", 400)


def test_a_speeds_table_without_the_workload_of_an_unfinished_job_is_refused(
    server: LiveServer,
) -> None:
    server.start()
    (job_id,) = submit(server, 1, 3000)
    server.kill()
    speeds = server.root / "speeds.csv"
    speeds.write_text("\n".join(line for line in SPEEDS.splitlines() if "big" not in line))
    server.launch()
    assert server.process is not None
    assert server.process.wait(30) == 2
    message = (server.root / "server.log").read_text().splitlines()[-1]
    assert "no workload 'big'" in message
    assert "cancel" in message
    speeds.write_text(SPEEDS)
    server.start()
    assert server.client.job(job_id)["state"] in ("queued", "running")
    server.client.post(f"/v1/jobs/{job_id}/cancel")
