"""A job that runs on one V100 or on two K80, with real processes and emulated devices."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer

TRAIN = """
import json, os, sys
from itertools import count
from fairlead import job

run, seen = job.attach(), {"steps": []}
run.register(seen=seen)
for i in run.steps(count()):
    seen["steps"].append(i)
    if run.rank == 0 and run.world_size == 1 and os.path.exists(sys.argv[1]):
        break
with open(sys.argv[2], "w") as file:
    json.dump(seen, file)
"""
"""trains until a file exists, on one device"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=1,k80=2", round_s=2.0).start()
    yield made
    made.clean_up()


def wait_for(
    server: LiveServer, job: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait for a condition of a job and return the job."""
    until = time.monotonic() + 120
    while not holds(view := server.client.job(job)):
        assert time.monotonic() < until, json.dumps(view)
        assert view["state"] in ("queued", "running"), view
        time.sleep(0.1)
    return view


def test_a_job_moves_from_one_v100_to_two_k80_and_back_and_loses_no_step(
    server: LiveServer,
) -> None:
    out, enough = server.root / "out", server.root / "enough"
    (server.root / "train.py").write_text(TRAIN)
    made = server.cli(
        "submit", "--workload", "big", "--gang", 1, "--accelerators", "v100,k80=2",
        "--", sys.executable, server.root / "train.py", enough, out,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    job = made.stdout.strip()

    def on(accelerator: str, steps: float) -> Callable[[dict[str, Any]], bool]:
        return lambda view: view["accelerator"] == accelerator and view["steps_done"] >= steps

    first = wait_for(server, job, on("v100", 50))
    assert (first["devices"], first["gang"]) == (1, 1)
    assert server.cli("nodes", "drain", "v100-0").returncode == 0
    second = wait_for(server, job, on("k80", first["steps_done"] + 20))
    assert second["devices"] == 2
    shares = json.loads(server.cli("shares", "--json").stdout)
    assert shares[0]["received"] == pytest.approx(2 / 3)
    assert server.cli("nodes", "return", "v100-0").returncode == 0
    third = wait_for(server, job, on("v100", second["steps_done"] + 1))
    assert third["devices"] == 1
    enough.touch()
    done = server.client.wait(job, timeout_s=120)
    steps = json.loads(out.read_text())["steps"]
    assert steps == list(range(len(steps)))
    assert (done["state"], done["devices"]) == ("finished", 0)
    assert third["steps_done"] < len(steps)
    assert sorted(done["accelerators_used"]) == ["k80", "v100"]
    assert done["failures"] == 0
