"""A node of Ray that is cut off and lives on: jobs run elsewhere, what it writes is refused."""

import contextlib
import time
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
    Apart,
    apart,
)

from fairlead.model.cluster import Node
from fairlead.private_clusters import ray as ray_cluster
from fairlead.private_clusters.ray import HEAD, RayCluster

pytestmark = pytest.mark.slow

NODES = (
    Node("n2", ("v100", "v100", "p100"), "r1"),  # the one that is cut off
    Node("n3", ("k80", "k80", "k80", "k80"), "r2"),
    Node(HEAD, ("v100",), "r2"),
)
BESIDE = "10.77.0.3"


@pytest.fixture
def far() -> Iterator[Apart]:
    problem = namespaces.missing() or ray_cluster.missing()
    if problem:
        pytest.skip(problem)
    with apart(BESIDE) as made:
        yield made


@pytest.fixture
def server(far: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayServer]:
    ray = RayCluster(NODES, {HEAD: HERE, "n3": BESIDE, "n2": THERE}, {"n2": far.enter})
    made = RayServer(tmp_path, ray, HERE).with_certificate()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    try:
        ray.start()
        yield made
    finally:
        made.stop()
        ray.stop()


def processes(text: str) -> list[int]:
    """Return the processes in whose command lines this is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def is_up(server: RayServer, name: str) -> bool:
    (node,) = [one for one in server.client.get("/v1/nodes") if one["id"] == name]
    return bool(node["up"])


def test_a_node_cut_off_while_the_server_dies_loses_nothing_and_writes_nothing(
    server: RayServer, far: Apart
) -> None:
    scene = CutOff(server, far, 1200, 1000)
    assert server.leases() == {scene.gang: ["n2", "n4"], scene.alone: ["n2"]}
    time.sleep(2.5)
    restarted, taken = scene.cut()
    # A server that takes half of it to start, on a busy machine, has as much again.
    assert taken < 10.0 or taken - restarted < 5.0
    kept = f"{server.data}/ray/nodes/n2/leases/"
    assert processes(kept), "a keeper there lives on"
    scene.let_it_try_to_save()
    far.restore_network()
    # Ray's part of the node hears that it was given up and ends, and with it what it kept.
    ended = server.until(lambda: not processes(kept), "nothing of ours to run there")
    note(f"nothing of ours ran there {ended:.1f} s after the cable was back")
    scene.finish()
    server.until(lambda: not server.ray.groups(), "Ray to have its devices back")
    assert not is_up(server, "n2")
    server.ray.start_node("n2")
    server.until(lambda: is_up(server, "n2"), "the node to be used again")
