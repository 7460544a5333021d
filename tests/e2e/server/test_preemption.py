"""Preemption spares jobs that would lose their work."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

SCRIPT = "import sys, time; time.sleep(float(sys.argv[1]))"
"""a program that neither uses the library nor writes checkpoints"""


@contextmanager
def serving(root: Path, devices: str, *options: str) -> Iterator[LiveServer]:
    """Run a server with rounds of one second."""
    root.mkdir(exist_ok=True)
    server = LiveServer(root, devices=devices, round_s=1.0)
    server.extra = options
    try:
        yield server.start()
    finally:
        server.clean_up()


def run_scripts(server: LiveServer, count: int = 6, seconds: float = 3.0) -> float:
    """Run equal scripts on two devices; return the seconds taken."""
    command = [sys.executable, "-c", SCRIPT, str(seconds)]
    began = time.monotonic()
    ids = [server.client.submit(command, workload="small")["id"] for _ in range(count)]
    ends = [server.client.wait(job, timeout_s=180) for job in ids]
    taken_s = time.monotonic() - began
    assert {(job["state"], job["preemptions"], job["lost_s"]) for job in ends} == {
        ("finished", 0, 0.0)
    }
    return taken_s


def test_programs_without_checkpoints_finish_as_fast_as_under_fifo(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "fair", "v100=1,k80=1") as fair,
        serving(tmp_path / "fifo", "v100=1,k80=1", "--policy", "fifo") as fifo,
        ThreadPoolExecutor(2) as pool,
    ):
        # At the same time, so that a busy machine slows down both.
        fair_s, fifo_s = pool.map(run_scripts, (fair, fifo))
    assert fair_s < 1.3 * fifo_s


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with serving(tmp_path, "v100=1") as server:
        yield server


def test_a_job_may_choose_to_be_preempted_and_the_lost_work_is_shown(server: LiveServer) -> None:
    command = [sys.executable, "-c", SCRIPT, "600"]
    settings = {"workload": "small", "preempt": "yes"}
    ids = [server.client.submit(command, **settings)["id"] for _ in range(2)]
    deadline = time.monotonic() + 120
    while sum(server.client.job(job)["preemptions"] for job in ids) < 2:
        assert time.monotonic() < deadline, [server.client.job(job) for job in ids]
        time.sleep(0.1)
    page = server.cli("job", ids[0]).stdout
    for shown_text in ("s of work lost: no checkpoint holds them", "believed speeds", "table"):
        assert shown_text in page
    assert "work lost" in server.cli("jobs").stdout
    log = (server.root / "server.log").read_text()
    assert f"warning job.work_lost job={ids[0]}" in log
    for job in ids:
        server.client.post(f"/v1/jobs/{job}/cancel")
    until(lambda: not any(server.client.job(job)["devices"] for job in ids), "a job does not end")
    lost_s = sum(server.client.job(job)["lost_s"] for job in ids)
    assert lost_s > 1.0
    _, _, text = server.client.raw("GET", "/metrics")
    (shown,) = [
        float(line.split()[1])
        for line in text.decode().splitlines()
        if line.startswith("fairlead_work_lost_seconds_total{")
    ]
    assert shown == pytest.approx(lost_s)


def test_a_job_that_must_not_be_preempted_keeps_its_device(server: LiveServer) -> None:
    train = [sys.executable, str(server.root / "train.py")]
    kept = server.client.submit(
        [*train, "400", str(server.root / "kept")], workload="small", steps=400, preempt="no"
    )["id"]
    deadline = time.monotonic() + 60
    while not server.client.job(kept)["pinned"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    other = server.client.submit(
        [*train, "50", str(server.root / "other")], workload="small", steps=50
    )["id"]
    assert server.client.wait(other, timeout_s=90)["state"] == "finished"
    first = server.client.job(kept)
    assert (first["state"], first["preemptions"], first["leases"]) == ("finished", 0, 1)


def test_an_exit_before_the_declared_steps_fails_unless_allowed(server: LiveServer) -> None:
    train = [sys.executable, str(server.root / "train.py"), "10", str(server.root / "out")]
    submit = ("submit", "--workload", "small", "--steps", 50)
    for flags in ((), ("--allow-short",)):
        submitted = server.cli(*submit, *flags, "--", *train)
        assert submitted.returncode == 0, submitted.stderr
    short = server.client.wait("j1", timeout_s=120)
    assert (short["state"], short["steps_done"], short["failures"]) == ("failed", 10, 1)
    assert short["message"].startswith("exited with 0 after 10 of 50 steps: expected all of them")
    assert server.cli("job", "j1", "--wait").returncode == 1
    allowed = server.client.wait("j2", timeout_s=120)
    assert (allowed["state"], allowed["steps_done"], allowed["message"]) == ("finished", 10, "")
    assert server.cli(*submit, "--", "true").returncode == 0
    plain = server.client.wait("j3", timeout_s=120)
    unchecked = "finished without reporting a step: --steps 50 was not checked"
    assert (plain["state"], plain["message"]) == ("finished", unchecked)


EARLY_STOP = """
import time
from itertools import count
from pathlib import Path
from fairlead import job

run = job.attach()
for i in run.steps(count()):
    if i == 5:
        Path("in_loop").touch()
        while not Path("stopped").exists(): time.sleep(0.01)
        break
"""


def test_a_job_that_exits_by_itself_while_it_is_stopped_is_done_with_its_steps(
    server: LiveServer,
) -> None:
    command, directory = [sys.executable, "-c", EARLY_STOP], str(server.root)
    job = server.client.submit(command, workload="small", directory=directory)["id"]
    until((server.root / "in_loop").exists, "it trains", 60.0)
    server.client.suspend(job)
    (server.root / "stopped").touch()
    until(lambda: server.client.job(job)["state"] == "finished", "it is done", 60.0)
    ended = server.client.job(job)
    assert (ended["steps_done"], ended["leases"], ended["lost_s"]) == (5, 1, 0.0)
