"""A partitioned Ray node that keeps running: jobs resume elsewhere, its writers are fenced."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.support.cluster_server import note
from tests.e2e.support.cut_off import CutOff
from tests.support import namespaces
from tests.support.namespaces import (
    HERE,
    THERE,
    IsolatedNode,
    isolated_node,
)

from fairlead.model.cluster import Node
from fairlead.private_clusters import ray as ray_cluster
from fairlead.private_clusters.ray import HEAD, RayCluster

pytestmark = pytest.mark.slow

NODES = (
    Node("n2", ("v100", "v100", "p100"), "r1"),  # the partitioned one
    Node("n3", ("k80", "k80", "k80", "k80"), "r2"),
    Node(HEAD, ("v100",), "r2"),
)
BESIDE = "10.77.0.3"


@pytest.fixture
def far() -> Iterator[IsolatedNode]:
    problem = namespaces.missing() or ray_cluster.missing()
    if problem:
        pytest.skip(problem)
    with isolated_node(BESIDE) as made:
        yield made


@pytest.fixture
def server(
    far: IsolatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayServer]:
    addresses = {HEAD: HERE, "n3": BESIDE, "n2": THERE}
    ray = RayCluster(NODES, addresses, {"n2": far.enter}, silence_s=3.0)
    server = RayServer(tmp_path, ray, HERE).with_certificate()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    try:
        ray.start()
        yield server
    finally:
        server.stop()
        ray.stop()


def processes(text: str) -> list[int]:
    """Return the processes with a text in their command line."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
    return pids


def is_up(server: RayServer, name: str) -> bool:
    (up,) = [node["up"] for node in server.client.get("/v1/nodes") if node["id"] == name]
    return bool(up)


def test_a_node_partitioned_while_the_server_dies_loses_no_steps_and_is_fenced(
    server: RayServer, far: IsolatedNode
) -> None:
    scene = CutOff(server, far, 1200, 1000)
    assert server.leases() == {scene.gang: ["n2", "n4"], scene.alone: ["n2"]}
    restarted, taken = scene.cut()
    # Ray detects the partition after 10.5 s, and a round takes 180 s.
    assert taken - restarted < 30.0
    leases = f"{server.data}/ray/nodes/n2/leases/"
    assert processes(leases), "no keeper is left there"
    scene.let_it_try_to_save()
    far.restore_network()
    # The raylet learns that its node was declared dead and exits, and the keepers with it.
    ended_s = server.until(lambda: not processes(leases), "the keepers to end")
    note(f"the keepers ended {ended_s:.1f} s after the network was restored")
    scene.finish()
    server.until(lambda: not server.ray.groups(), "all placement groups to be removed")
    assert not is_up(server, "n2")
    server.ray.start_node("n2")
    server.until(lambda: is_up(server, "n2"), "the node to be used again")
