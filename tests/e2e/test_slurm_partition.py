"""A node that is cut off and lives on: its jobs run elsewhere, and what it writes is refused."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.slurm_server import SlurmServer, note
from tests.e2e.test_live import check_result

from fairlead.model.cluster import Node
from fairlead.testing import slurm_apart, slurm_cluster
from fairlead.testing.slurm_apart import HERE, THERE, Apart, apart
from fairlead.testing.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow

NODES = (
    Node("n1", ("v100",), "r1"),
    Node("n2", ("v100", "v100", "p100"), "r1"),  # the one that is cut off
    Node("n3", ("k80", "k80", "k80", "k80"), "r2"),
)


@pytest.fixture
def far() -> Iterator[Apart]:
    problem = slurm_apart.missing() or slurm_cluster.missing()
    if problem:
        pytest.skip(problem)
    with apart() as made:
        yield made


@pytest.fixture
def server(far: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmServer]:
    there = {"n2": (THERE, far.enter)}
    slurm = SlurmCluster(tmp_path / "slurm", NODES, address=HERE, apart=there)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    made = SlurmServer(tmp_path, slurm, HERE).with_certificate()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    try:
        slurm.start()
        yield made
    finally:
        made.stop()
        slurm.stop()


def test_a_node_cut_off_while_the_server_dies_loses_nothing_and_writes_nothing(
    server: SlurmServer, far: Apart
) -> None:
    server.start(round_s=40.0)
    server.client.post("/v1/nodes/n3/cordon")
    often = {"FAIRLEAD_CHECKPOINT_S": "0.5"}
    gang = server.submit("gang", 1500, workload="small", gang=3, accelerators=["v100", "k80"])
    alone = server.submit(
        "alone", 700, workload="uneven", accelerators=["p100", "k80"], environment=often
    )
    server.until(lambda: {gang, alone} <= set(server.leases()), "both to run")
    assert server.leases() == {gang: ["n1", "n2"], alone: ["n2"]}
    old = max(server.data.glob(f"jobs/{alone}/logs/*.0.log"))
    server.client.post("/v1/nodes/n3/return")
    time.sleep(2.5)
    # All at once: the node's network is gone, what it sees of the data directory, and the server.
    began = time.monotonic()
    far.cut(server.data)
    server.kill()
    server.start(round_s=40.0)
    restarted = time.monotonic() - began
    server.until(lambda: server.leases() == {gang: ["n3"], alone: ["n3"]}, "both to run elsewhere")
    taken = time.monotonic() - began
    note(f"run elsewhere after {taken:.1f} s, of which the server's start took {restarted:.1f} s")
    assert taken - restarted < 12.0
    # The job there, slow as it is, has gone on. It sees the directory again and wants to save.
    saved = json.loads(next(server.data.glob(f"jobs/{alone}/checkpoint/latest.json")).read_text())
    assert "no checkpoint at step" in old.read_text()
    assert "refused" not in old.read_text()
    far.mend_directories(server.data)
    server.until(lambda: "refused: lease" in old.read_text(), "the old job's checkpoint")
    assert "may write" in old.read_text()
    assert saved["steps"] > 0
    far.mend_network()
    for job_id, name, steps, ranks in ((gang, "gang", 1500, 3), (alone, "alone", 700, 1)):
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["steps_done"], job["leases"]) == ("finished", steps, 2)
        assert job["failures"] == 0
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", steps)
