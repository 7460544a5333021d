"""A real server that starts without the speeds of its jobs and learns them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.estimate.live import deviation, ended_rounds, speed_errors
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.files import read_speeds

pytestmark = pytest.mark.slow

_HEADER = "workload,gang,accelerator,steps_per_s\n"
_RATES = {"a": (40.0, 10.0), "b": (30.0, 20.0), "c": (20.0, 12.0)}
"""model → true steps per second on a V100 and on a K80"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=6,k80=6", round_s=8.0)
    # The table inflates one workload of tenant b, and lacks all others.
    (tmp_path / "speeds.csv").write_text(f"{_HEADER}mine,1,v100,40\nmine,1,k80,10\n")
    truth = dict.fromkeys(("mine", "declared"), (20.0, 10.0))
    truth |= {_workload(tmp_path, model): rates for model, rates in _RATES.items()}
    rows = [f"{name},1,v100,{fast}\n{name},1,k80,{slow}\n" for name, (fast, slow) in truth.items()]
    (tmp_path / "truth.csv").write_text(_HEADER + "".join(rows))
    made.extra = ("--emulated-speeds", str(tmp_path / "truth.csv"))
    made.start()
    yield made
    made.clean_up()


def _workload(root: Path, model: str) -> str:
    return f"{root.name}/train.py 100000 out --model {model}"


def test_speeds_of_unknown_scripts_are_learnt_and_measurement_overrules_a_declared_speed(
    server: LiveServer,
) -> None:
    command = [sys.executable, str(server.root / "train.py"), "100000", "out", "--model"]
    liar: dict[str, object] = {"workload": "mine", "tenant": "b", "accelerators": ["v100"]}
    running = server.client.submit([*command, "a"], **liar)
    # Tenant b says twice the true speed of a workload of which the server knows nothing.
    liar |= {"workload": "declared", "speeds": {"v100": 40.0}}
    waiting = server.client.submit([*command, "a"], **liar, after=[running.id])
    (first,) = server.client.get(f"/v1/jobs/{waiting.id}/speeds")
    assert first["source"] == "assumed"
    assert first["steps_per_s"] == pytest.approx(40.0, rel=0.05)
    # Another job of the workload declares another speed: both are shown.
    modest = {**liar, "speeds": {"v100": 15.0}}
    server.client.submit([*command, "a"], **modest, after=[running.id])
    shown = [row for row in server.client.get("/v1/speeds") if row["workload"] == "declared"]
    assert [row["declared_steps_per_s"] for row in shown] == [40.0, 15.0]
    assert shown[0]["steps_per_s"] > shown[1]["steps_per_s"]
    assert "assumed, " in server.cli("speeds", "show").stdout  # declared 15, in a narrow column
    server.client.submit([*command, "a"], **liar)
    for seed, model in enumerate("abcabcabca"):
        server.client.submit([*command, model, "--seed", str(seed)])
    truth = read_speeds(server.root / "truth.csv")

    def largest_error() -> float:
        return max(speed_errors(server.client.get("/v1/speeds"), truth).values())

    until(lambda: _training(server) == 12, "some jobs do not train", limit_s=180)
    before = ended_rounds(server.data)
    until(lambda: largest_error() <= 0.1, "the speeds are not learnt", limit_s=180)
    assert ended_rounds(server.data) - before <= 3
    until(lambda: len(server.client.get("/v1/speeds/measured")) == 8, "not all are measured")
    (last,) = server.client.get(f"/v1/jobs/{waiting.id}/speeds")
    assert last["source"] == "measured"
    body = server.client.text("GET", "/v1/instance")[1].decode()
    assert len(json.loads(body)["jobs"]) == 12
    assert deviation(body, truth) <= 0.05
    check = server.cli("speeds", "check")
    assert check.returncode == 1  # the table is wrong about tenant b's workload on a V100
    assert check.stdout.count("mine") == 1
    out = server.root / "measured.csv"
    assert server.cli("speeds", "export", "--out", out).returncode == 0
    assert len(read_speeds(out).steps_per_s) == 8
    assert server.cli("speeds", "import", out).returncode == 0
    assert server.cli("speeds", "check").returncode == 0
    forgotten = server.cli("speeds", "forget", "--tenant", "b")
    assert forgotten.stdout == "2 speeds forgotten\n"


def _training(server: LiveServer) -> int:
    """Return the number of jobs that have made a step."""
    return sum(job["steps_done"] > 0 for job in server.client.get("/v1/jobs"))
