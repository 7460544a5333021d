"""A job that trains in copies on nodes of different speed: every step is made and counted once."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.trained_line import LINE
from tests.support.waiting import until

STEPS = 400
TRAIN = (
    LINE
    + """
run, line = job.attach(), Line()
run.register(line=line)
for i in run.steps(range(int(sys.argv[1]))):
    if run.copy == 2 and os.path.exists("crash"):
        os.unlink("crash")
        os.kill(os.getpid(), 9)
    line.step(i)
with open("result.json", "w") as file:
    json.dump({"a": line.a, "b": line.b, "steps": run.steps_done, "copy": run.copy}, file)
"""
)
SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
line,1,v100,,,40,
line,1,p100,,,25,
line,1,k80,,,10,
"""


@pytest.mark.slow
def test_copies_on_three_nodes_survive_the_death_of_one_and_of_the_server(
    own_server: LiveServer,
) -> None:
    server, root = own_server, own_server.root
    server.devices, server.round_s = "v100=1,p100=1,k80=1", 3.0
    (root / "speeds.csv").write_text(SPEEDS)
    (root / "train.py").write_text(TRAIN)
    server.extra = ("--policy", "hadare:restart-s=0.1")
    server.start()
    (root / "crash").touch()
    command = [sys.executable, "train.py", str(STEPS)]
    job = server.client.submit(
        command, directory=str(root), workload="line", steps=STEPS, max_copies=3, retries=9
    )
    until(lambda: not (root / "crash").exists(), "no copy crashes")
    until(lambda: _merged(server.data, job.id) or _finished(server, job.id), "nothing is merged")
    server.kill()
    server.start()
    done = until(lambda: _finished(server, job.id), "the job does not end", limit_s=180.0)
    assert (done["steps_done"], done["failures"]) == (STEPS, 1)
    assert {*done["accelerators_used"]} == {"v100", "p100", "k80"}
    leases = server.client.get(f"/v1/jobs/{job.id}/leases")["ended"]
    assert sum(lease["started_at"] == done["started_at"] for lease in leases) == 3
    assert sum(lease["steps"] for lease in leases) == STEPS
    result = json.loads((root / "result.json").read_text())
    assert (result["steps"], result["copy"]) == (STEPS, 0)
    # Steps of copies beside each other bring their average less far than steps in a row.
    assert (result["a"], result["b"]) == (pytest.approx(3, abs=0.6), pytest.approx(1, abs=0.6))
    assert not list((server.data / "jobs" / job.id / "copies").iterdir())


def _merged(data: Path, job: str) -> bool:
    path = data / "jobs" / job / "checkpoint" / "latest.json"
    return path.exists() and "weights" in json.loads(path.read_text())


def _finished(server: LiveServer, job: str) -> dict[str, Any] | None:
    view: dict[str, Any] = server.client.get(f"/v1/jobs/{job}")
    assert view["state"] != "failed", view
    return view if view["state"] == "finished" else None
