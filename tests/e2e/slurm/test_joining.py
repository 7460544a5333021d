"""Nodes that join, leave and change on a real Slurm while the server runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.slurm.server import SlurmServer, note
from tests.e2e.support.trained_line import check_result

from fairlead.model.cluster import Node
from fairlead.private_clusters.slurm import SlurmCluster, missing

pytestmark = pytest.mark.slow

FIRST = (Node("n1", ("v100",), "r1"),)
NEW = Node("n10", ("k80", "k80"), "r2")
FEWER = Node("n10", ("k80",), "r2")
GROWN = Node("n10", ("k80", "k80", "k80", "p100"), "r2")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmServer]:
    if missing():
        pytest.skip(missing())
    slurm = SlurmCluster(tmp_path / "slurm", FIRST, patience_s=120.0)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    server = SlurmServer(tmp_path, slurm)
    try:
        slurm.start()
        yield server
    finally:
        server.stop()
        slurm.stop()


def nodes_up(server: SlurmServer) -> dict[str, bool]:
    return {node["id"]: node["up"] for node in server.client.get("/v1/nodes")}


def counts(server: SlurmServer) -> dict[str, tuple[bool, int]]:
    """Return node → whether it is up, and its devices that are missing."""
    return {node["id"]: (node["up"], node["taken"]) for node in server.client.get("/v1/nodes")}


def test_nodes_that_join_or_grow_are_used_and_removed_nodes_are_left(server: SlurmServer) -> None:
    server.start(round_s=30.0)
    stays = server.submit("stays", 2000, workload="small", accelerators=["v100"])
    server.until(lambda: stays in server.leases(), "the first job to run")
    assert nodes_up(server) == {"n1": True}
    server.slurm.set_nodes([*FIRST, NEW])
    taken = server.until(lambda: nodes_up(server).get("n10", False), "the new node to join")
    note(f"joined {taken:.1f} s after the start of its daemon")
    moves = server.submit("moves", 900, workload="small", gang=2, accelerators=["k80"])
    server.until(lambda: server.leases() == {stays: ["n1"], moves: ["n10"]}, "it to be used")
    server.until(lambda: server.client.job(moves)["steps_done"] > 50, "some steps there")
    server.slurm.set_nodes(FIRST)
    server.until(lambda: not nodes_up(server)["n10"], "the node to be down")
    server.until(lambda: server.is_in_state(moves, "queued"), "its job to have left it")
    server.stop()  # a restart must not change the registry
    server.start(round_s=30.0)
    assert nodes_up(server) == {"n1": True, "n10": False}
    server.slurm.set_nodes([*FIRST, FEWER])
    server.until(lambda: counts(server) == {"n1": (True, 0), "n10": (True, 1)}, "one device")
    single = server.submit("single", 20, workload="small", accelerators=["k80"])
    assert server.client.wait(single, timeout_s=120)["state"] == "finished", server.log()
    assert server.is_in_state(moves, "queued")
    server.slurm.set_nodes([*FIRST, GROWN])
    grown = {"n1": (True, 0), "n10": (True, 0), "n10+1": (True, 0)}
    server.until(lambda: counts(server) == grown, "the additional devices", 120.0)
    other = server.submit("other", 20, workload="small", accelerators=["p100"])
    assert server.client.wait(other, timeout_s=120)["state"] == "finished", server.log()
    for job_id, name, steps, ranks in ((moves, "moves", 900, 2), (stays, "stays", 2000, 1)):
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        assert job["failures"] == 0
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", steps)
    assert server.client.job(stays)["leases"] == 1
    assert server.client.job(moves)["leases"] >= 2
    wide = server.submit("wide", 200, workload="small", gang=3, accelerators=["k80"])
    assert server.client.wait(wide, timeout_s=120)["state"] == "finished", server.log()
    for rank in range(3):
        check_result(server.root / f"wide.{rank}", 200)
