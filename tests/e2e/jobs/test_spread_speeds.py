"""A real server that learns how much slower gangs are on more nodes than they need."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.files import read_speeds

pytestmark = pytest.mark.slow

_CLUSTER = """
nodes:
  - {id: whole, devices: {v100: 2}}
  - {id: left, devices: {v100: 1}}
  - {id: right, devices: {v100: 1}}
"""
_TRUTH = """workload,gang,accelerator,placement,steps_per_s
new,2,v100,,40
new,2,v100,spread,20
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    (tmp_path / "cluster.yaml").write_text(_CLUSTER)
    made = LiveServer(tmp_path, devices=str(tmp_path / "cluster.yaml"), round_s=10.0)
    (tmp_path / "truth.csv").write_text(_TRUTH)
    made.extra = ("--emulated-speeds", str(tmp_path / "truth.csv"))
    made.start()
    yield made
    made.clean_up()


def test_consolidated_and_spread_speeds_of_a_gang_are_learnt_apart(server: LiveServer) -> None:
    """One gang has the node with two devices, the other one the two nodes with one device."""
    command = [sys.executable, str(server.root / "train.py"), "100000", "out"]
    for _ in range(2):
        server.client.submit(command, workload="new", gang=2)
    truth = {"consolidated": 40.0, "spread": 20.0}

    def are_learnt() -> bool:
        rows = server.client.get("/v1/speeds")
        measured = {r["placement"]: r["steps_per_s"] for r in rows if r["source"] == "measured"}
        return measured == pytest.approx(truth, rel=0.05)

    until(are_learnt, "the speeds are not learnt", limit_s=180)
    assert "2 spread" in server.cli("speeds", "show").stdout
    out = server.root / "measured.csv"
    assert server.cli("speeds", "export", "--out", out).returncode == 0
    assert {key.placement for key in read_speeds(out).steps_per_s} == {*truth}
    assert server.cli("speeds", "import", out).returncode == 0
    assert server.cli("speeds", "check").returncode == 0
    assert server.cli("speeds", "check", server.root / "truth.csv").returncode == 0
