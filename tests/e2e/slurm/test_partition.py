"""A partitioned Slurm node that keeps running: jobs resume elsewhere, its writers are fenced."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.cut_off import CutOff
from tests.support import namespaces
from tests.support.namespaces import (
    HERE,
    THERE,
    IsolatedNode,
    isolated_node,
)

from fairlead.model.cluster import Node
from fairlead.private_clusters import slurm as slurm_cluster
from fairlead.private_clusters.slurm import SlurmCluster

pytestmark = pytest.mark.slow

NODES = (
    Node("n1", ("v100",), "r1"),
    Node("n2", ("v100", "v100", "p100"), "r1"),  # the partitioned one
    Node("n3", ("k80", "k80", "k80", "k80"), "r2"),
)


@pytest.fixture
def far() -> Iterator[IsolatedNode]:
    problem = namespaces.missing() or slurm_cluster.missing()
    if problem:
        pytest.skip(problem)
    with isolated_node() as made:
        yield made


@pytest.fixture
def server(
    far: IsolatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmServer]:
    there = {"n2": (THERE, far.enter)}
    slurm = SlurmCluster(tmp_path / "slurm", NODES, address=HERE, apart=there, patience_s=120.0)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    server = SlurmServer(tmp_path, slurm, HERE).with_certificate()
    server.silence_s = 5.0
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    try:
        slurm.start()
        yield server
    finally:
        server.stop()
        slurm.stop()


def test_a_node_partitioned_while_the_server_dies_loses_no_steps_and_is_fenced(
    server: SlurmServer, far: IsolatedNode
) -> None:
    scene = CutOff(server, far, 1500, 1000)
    assert server.leases() == {scene.gang: ["n1", "n2"], scene.alone: ["n2"]}
    restarted, taken = scene.cut()
    assert taken - restarted < 30.0  # seven on a quiet machine; a round takes 180
    scene.let_it_try_to_save()
    far.restore_network()
    scene.finish()
    # No lease, Slurm job, process or lost node is left.
    server.until(lambda: not list((server.data / "leases").iterdir()), "no lease to be left")
    server.until(lambda: not server.slurm.run("squeue", "--noheader"), "the queue to be empty")
    server.until(lambda: not server.running("train.py"), "the old members' end")
    server.until(
        lambda: all(node["up"] for node in server.client.get("/v1/nodes")), "n2 to be back"
    )
    server.slurm.wait_idle()
