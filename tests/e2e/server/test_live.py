"""The whole live system with real processes: nothing lost, nothing counted twice."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib import request

import pytest
from tests.e2e.support.live_server import LiveServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path)
    made.start()
    yield made
    made.clean_up()


def fitted(steps: int) -> tuple[float, float, list[float]]:
    a = b = 0.0
    losses = []
    for i in range(steps):
        x = (i * 37 % 101) / 101
        error = a * x + b - (3 * x + 1)
        a -= 0.2 * error * x
        b -= 0.2 * error
        losses.append(error * error)
    return a, b, losses


def check_result(path: Path, steps: int) -> None:
    found: dict[str, Any] = json.loads(path.read_text())
    a, b, losses = fitted(steps)
    assert (found["a"], found["b"]) == (a, b)
    assert found["seen"] == losses
    assert sum(losses[-20:]) < 0.1 * sum(losses[:20])


def test_jobs_from_all_doors_train_move_and_finish_exactly(server: LiveServer) -> None:
    train, steps = str(server.root / "train.py"), 500
    python = sys.executable
    said = server.cli(
        "submit", "--workload", "big", "--steps", steps, "--json", "--",
        python, train, steps, server.root / "cli",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    ids = {"cli": json.loads(said.stdout)["id"]}
    made = server.client.submit(
        [python, train, str(steps), str(server.root / "python")], workload="small", steps=steps
    )
    ids["python"] = made["id"]
    body = {
        "command": [python, train, str(steps), str(server.root / "rest")],
        "workload": "big",
        "steps": steps,
    }
    asked = request.Request(
        f"http://127.0.0.1:{server.port}/v1/jobs",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {(server.data / 'admin.token').read_text()}",
            "Content-Type": "application/json",
        },
    )
    with request.urlopen(asked) as answer:
        assert answer.status == 201
        ids["rest"] = json.load(answer)["id"]
    ends = {door: server.client.wait(job, timeout_s=90) for door, job in ids.items()}
    for door, job in ends.items():
        assert (job["state"], job["steps_done"]) == ("finished", steps)
        check_result(server.root / f"{door}.0", steps)
    # How often depends on how soon the machine lets them arrive.
    assert sum(job["preemptions"] for job in ends.values()) >= 2
    assert any(len(job["accelerators_used"]) == 2 for job in ends.values())
    about = server.client.get("/v1/about")
    assert 0.01 < about["start_s"] < 30  # interpreter, keeper and imports take some time at least
    assert 0.001 < about["end_s"] < 30


def test_a_server_killed_again_and_again_loses_nothing(server: LiveServer) -> None:
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
        job = server.client.wait(job_id, timeout_s=90)
        assert (job["state"], job["steps_done"]) == ("finished", steps)
        check_result(server.root / f"out{number}.0", steps)


def test_a_gang_and_a_crashing_job(server: LiveServer) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    server.restart_anew("v100=2,k80=2")
    gang = server.client.submit(
        [python, train, "300", str(server.root / "gang")], workload="big", gang=2, steps=300
    )
    bad = server.client.submit(["bash", "-c", "exit 7"], workload="small", retries=1)
    shell = server.client.submit(
        ["bash", "-c", "for i in 1 2 3; do echo step $i; done"],
        workload="small",
        progress_pattern=r"step (\d+)",
    )
    assert server.client.wait(bad["id"], timeout_s=60)["state"] == "failed"
    found = server.client.job(bad["id"])
    assert found["failures"] == 2
    assert found["leases"] == 2 + found["preemptions"]  # a round may end before it crashes
    done = server.client.wait(shell["id"], timeout_s=60)
    assert (done["state"], done["steps_done"]) == ("finished", 3)
    assert server.cli("logs", shell["id"]).stdout == "step 1\nstep 2\nstep 3\n"
    assert server.client.wait(gang["id"], timeout_s=60)["state"] == "finished"
    for rank in (0, 1):
        check_result(server.root / f"gang.{rank}", 300)


def test_suspend_resume_and_cancel(server: LiveServer) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    command = [python, train, "1200", str(server.root / "out")]
    job = server.client.submit(command, workload="small", steps=1200)["id"]

    def until(**wanted: object) -> None:
        end = time.monotonic() + 20
        while any(server.client.job(job)[key] != value for key, value in wanted.items()):
            assert time.monotonic() < end, server.client.job(job)
            time.sleep(0.05)

    until(state="running")
    assert server.cli("suspend", job).returncode == 0
    until(state="suspended", accelerator=None)
    steps = server.client.job(job)["steps_done"]
    server.kill()
    server.start()
    time.sleep(1.0)
    assert server.client.job(job)["state"] == "suspended"
    assert server.client.job(job)["steps_done"] == steps
    assert server.cli("resume", job).returncode == 0
    assert server.client.wait(job, timeout_s=60)["state"] == "finished"
    check_result(server.root / "out.0", 1200)
    other = server.client.submit(command, workload="small", steps=1200)["id"]
    assert server.cli("cancel", other).returncode == 0
    assert server.client.wait(other, timeout_s=20)["state"] == "cancelled"
    refused = server.cli("cancel", other)
    assert refused.returncode == 1
    assert "already ended" in refused.stderr


def test_bad_submissions_are_refused_with_the_field(server: LiveServer) -> None:
    for settings, field in (
        ({"workload": "unknown"}, "workload"),
        ({"workload": "big", "gang": 9}, "gang"),
        ({"workload": "big", "steps": 0}, "steps"),
        ({"workload": "big", "progress_pattern": "("}, "progress_pattern"),
    ):
        status, _, text = server.client.raw("POST", "/v1/jobs", {"command": ["x"], **settings})
        assert status == 422, text
        assert json.loads(text)["error"]["field"] == field
    assert server.client.get("/v1/jobs") == []
