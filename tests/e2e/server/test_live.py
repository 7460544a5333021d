"""The live system with real processes: no step is lost or counted twice."""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib import request

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.trained_line import check_result
from tests.support.waiting import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path)
    made.start()
    yield made
    made.clean_up()


def test_jobs_from_cli_python_and_rest_migrate_and_finish_exactly(server: LiveServer) -> None:
    train, steps = str(server.root / "train.py"), 900  # several rounds on a busy machine too
    python = sys.executable
    submitted = server.cli(
        "submit", "--workload", "big", "--steps", steps, "--json", "--",
        python, train, steps, server.root / "cli",
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    ids = {"cli": json.loads(submitted.stdout)["id"]}
    made = server.client.submit(
        [python, train, str(steps), str(server.root / "python")], workload="small", steps=steps
    )
    ids["python"] = made["id"]
    body = {
        "command": [python, train, str(steps), str(server.root / "rest")],
        "workload": "big",
        "steps": steps,
    }
    post = request.Request(
        f"http://127.0.0.1:{server.port}/v1/jobs",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {(server.data / 'admin.token').read_text()}",
            "Content-Type": "application/json",
        },
    )
    with request.urlopen(post) as answer:
        assert answer.status == 201
        ids["rest"] = json.load(answer)["id"]
    ends = {client: server.client.wait(job, timeout_s=240) for client, job in ids.items()}
    for client, job in ends.items():
        assert (job["state"], job["steps_done"]) == ("finished", steps)
        check_result(server.root / f"{client}.0", steps)
    # The exact number depends on when the jobs arrive.
    assert sum(job["preemptions"] for job in ends.values()) >= 2
    assert any(len(job["accelerators_used"]) == 2 for job in ends.values())
    about = server.client.get("/v1/about")
    assert 0.01 < about["start_s"] < 30  # interpreter, keeper and imports take time
    assert 0.001 < about["end_s"] < 30


def test_a_repeatedly_killed_server_loses_no_step(server: LiveServer) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    ids = {}
    for number in range(4):
        steps = 250 + 50 * number
        command = [python, train, str(steps), str(server.root / f"out{number}")]
        settings = {"workload": ("big", "small")[number % 2], "steps": steps}
        ids[server.client.submit(command, **settings)["id"]] = (number, steps)
    for pause in (1.1, 2.3, 0.4, 3.2, 1.7):
        time.sleep(pause)
        server.kill()
        server.start()
    for job_id, (number, steps) in ids.items():
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", steps)
        check_result(server.root / f"out{number}.0", steps)


def test_a_gang_finishes_beside_a_failing_job(server: LiveServer) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    server.restart_empty("v100=2,k80=2")
    gang = server.client.submit(
        [python, train, "300", str(server.root / "gang")], workload="big", gang=2, steps=300
    )
    bad = server.client.submit(["bash", "-c", "exit 7"], workload="small", retries=1)
    shell = server.client.submit(
        ["bash", "-c", "for i in 1 2 3; do echo step $i; done"],
        workload="small",
        progress_pattern=r"step (\d+)",
    )
    assert server.client.wait(bad["id"], timeout_s=240)["state"] == "failed"
    failed = server.client.job(bad["id"])
    assert failed["failures"] == 2
    assert failed["leases"] == 2 + failed["preemptions"]  # a round may end before it exits
    done = server.client.wait(shell["id"], timeout_s=240)
    assert (done["state"], done["steps_done"]) == ("finished", 3)
    assert server.cli("logs", shell["id"]).stdout == "step 1\nstep 2\nstep 3\n"
    assert server.client.wait(gang["id"], timeout_s=240)["state"] == "finished"
    for rank in (0, 1):
        check_result(server.root / f"gang.{rank}", 300)


def test_a_suspended_job_keeps_its_steps_over_a_restart_until_it_is_resumed(
    server: LiveServer,
) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    command = [python, train, "1200", str(server.root / "out")]
    job = server.client.submit(command, workload="small", steps=1200)["id"]

    def wait_for(**wanted: object) -> None:
        end = time.monotonic() + 90
        while any(server.client.job(job)[key] != value for key, value in wanted.items()):
            assert time.monotonic() < end, server.client.job(job)
            time.sleep(0.05)

    wait_for(state="running")
    assert server.cli("suspend", job).returncode == 0
    wait_for(state="suspended", accelerator=None)
    steps = server.client.job(job)["steps_done"]
    server.kill()
    server.start()
    time.sleep(1.0)
    assert server.client.job(job)["state"] == "suspended"
    assert server.client.job(job)["steps_done"] == steps
    assert server.cli("resume", job).returncode == 0
    assert server.client.wait(job, timeout_s=240)["state"] == "finished"
    check_result(server.root / "out.0", 1200)
    other = server.client.submit(command, workload="small", steps=1200)["id"]
    assert server.cli("cancel", other).returncode == 0
    assert server.client.wait(other, timeout_s=240)["state"] == "cancelled"
    for action in ("cancel", "resume"):
        refused = server.cli(action, other)
        assert refused.returncode == 1
        assert f"job '{other}' has already ended [protocol]" in refused.stderr


def test_an_invalid_submission_is_refused_with_the_name_of_the_field(server: LiveServer) -> None:
    for settings, field in (
        ({"workload": "big", "gang": 9}, "gang"),
        ({"workload": "big", "steps": 0}, "steps"),
        ({"workload": "big", "steps": "5"}, "steps"),
        ({"workload": "big", "weight": math.nan}, "weight"),
        ({"workload": "big", "environment": {"": "x"}}, "environment"),
        ({"workload": "big", "progress_pattern": "("}, "progress_pattern"),
    ):
        status, _, text = server.client.raw("POST", "/v1/jobs", {"command": ["true"], **settings})
        assert status == 422, text
        assert json.loads(text)["error"]["field"] == field
    assert server.client.get("/v1/jobs") == []


def test_time_without_a_server_does_not_count_as_time_on_devices(server: LiveServer) -> None:
    limits = {"workload": "small", "retries": 0, "time_limit_s": 12.0}
    ends = server.client.submit(["sleep", "1"], **limits)["id"]
    lost = server.client.submit(["sleep", "100"], **limits)["id"]
    homes = {}
    for job in (ends, lost):
        lease, _ = until(partial(server.running_lease, job))
        homes[job] = server.data / "leases" / str(lease)
    server.kill()
    until((homes[ends] / "exit.json").exists)
    keeper = json.loads((homes[lost] / "members.json").read_text())["keeper"]
    os.kill(keeper, signal.SIGKILL)
    time.sleep(14.0)
    started_at = time.time()
    server.start()
    ended = server.client.wait(ends, timeout_s=90)
    assert ended["state"] == "finished"
    assert ended["ended_at"] < started_at - 8.0
    assert ended["held_s"] < 6.0
    until(lambda: server.client.get(f"/v1/jobs/{lost}/leases")["ended"])
    assert server.client.job(lost)["state"] in ("queued", "running")  # within its time limit
