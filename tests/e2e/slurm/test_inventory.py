"""The inventory of a real Slurm: partitions, reservations, MIG slices, racks, features."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.slurm.server import rig

from fairlead.engines.base import NodeDown, NodeJoined, NodeUp
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.model.cluster import Node
from fairlead.private_clusters.slurm import SlurmCluster, missing
from fairlead.testing.engines.harness import EngineHarness

pytestmark = pytest.mark.slow


def node_of(slurm: SlurmCluster, name: str) -> Node:
    return next(node for node in slurm.nodes if node.id == name)


def test_the_inventory_follows_the_nodes_of_a_reservation(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    slurm.run(
        "scontrol", "create", "reservation", "reservationname=ours", "starttime=now",
        "duration=60", "nodes=n1,n3", "users=root",
    )  # fmt: skip

    async def scene() -> None:
        engine = SlurmEngine(tmp_path / "data", reservation="ours", silence_s=30.0)
        bench = EngineHarness(rig(slurm, tmp_path), engine)
        cluster = await bench.engine.inventory()
        assert [node.id for node in cluster.nodes] == ["n1", "n3"]
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0), ("n3", 0)])
        assert not [report for report in bench.seen if isinstance(report, NodeDown)]
        await bench.engine.stop(1)
        await bench.ended(1)
        slurm.run("scontrol", "update", "reservation=ours", "nodes=n3,n4")
        await bench.until(lambda: NodeJoined(node_of(slurm, "n4")) in bench.seen, "the new node")
        await bench.node(NodeDown("n1"))
        slurm.run("scontrol", "update", "reservation=ours", "nodes=n1,n3")
        await bench.node(NodeUp("n1"))
        await bench.close()
        # For an engine outside the reservation its nodes are down.
        other = EngineHarness(rig(slurm, tmp_path), SlurmEngine(tmp_path / "other"))
        await other.engine.adopt(())
        await other.node(NodeDown("n1"))
        await other.node(NodeDown("n3"))
        await other.close()

    try:
        asyncio.run(scene())
    finally:
        slurm.run("scontrol", "delete", "reservation=ours")


def test_the_inventory_follows_the_nodes_of_a_partition(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    slurm.run("scontrol", "create", "partitionname=some", "nodes=n2,n4", "maxtime=60")

    async def scene() -> str:
        bench = EngineHarness(
            rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", partition="some")
        )
        cluster = await bench.engine.inventory()
        assert cluster.nodes == tuple(n for n in slurm.cluster.nodes if n.id in ("n2", "n4"))
        await bench.engine.adopt(())
        await bench.start(1, [("n2", 0), ("n4", 0)])
        jobs = slurm.run("squeue", "--noheader", "--format=%N %P")
        await bench.engine.stop(1)
        await bench.ended(1)
        await bench.until(lambda: not slurm.run("squeue", "--noheader"), "the queue to be empty")
        slurm.run("scontrol", "update", "partitionname=some", "nodes=n3,n4")
        await bench.until(lambda: NodeJoined(node_of(slurm, "n3")) in bench.seen, "the new node")
        await bench.node(NodeDown("n2"))
        await bench.start(2, [("n3", 0)])
        await bench.engine.stop(2)
        await bench.ended(2)
        await bench.until(lambda: not slurm.run("squeue", "--noheader"), "the queue to be empty")
        await bench.close()
        return jobs

    try:
        assert sorted(asyncio.run(scene()).split("\n")) == ["", "n2 some", "n4 some"]
    finally:
        slurm.run("scontrol", "delete", "partitionname=some")


SLICED = (
    Node("whole", ("a100", "a100"), "rack-r1"),
    Node("sliced", ("a100_3g.20gb", "a100_3g.20gb", "a100_1g.5gb"), "rack-r2"),
)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A Slurm without a topology, with racks as features and a MIG node."""
    if missing():
        pytest.skip(missing())
    nodes = [Node(node.id, node.devices, node.rack.removeprefix("rack-")) for node in SLICED]
    root = Path(
        tempfile.mkdtemp(prefix="fairlead-")
    )  # short: part of the names of Slurm's sockets
    settings = {"TopologyPlugin": "topology/none"}
    slurm = SlurmCluster(root / "own", nodes, settings, patience_s=120.0)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    try:
        yield slurm.start()
    finally:
        slurm.stop()
        shutil.rmtree(root)


def test_mig_slices_are_accelerators_and_features_name_racks(
    sliced: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> dict[str, str]:
        bench = EngineHarness(rig(sliced, tmp_path), SlurmEngine(tmp_path / "data"))
        cluster = await bench.engine.inventory()
        assert set(cluster.nodes) == set(SLICED)
        await bench.engine.adopt(())
        await bench.start(1, [("sliced", 2)])
        await bench.start(2, [("sliced", 0), ("sliced", 1)])
        (member,) = bench.members(1).values()
        environments = [other["environment"] for other in bench.members(2).values()]
        assert {each["FAIRLEAD_ACCELERATOR"] for each in environments} == {"a100_3g.20gb"}
        for lease in (1, 2):
            await bench.engine.stop(lease)
            await bench.ended(lease)
        await bench.close()
        return dict(member["environment"])

    environment = asyncio.run(scene())
    assert environment["FAIRLEAD_ACCELERATOR"] == "a100_1g.5gb"
    assert environment["FAIRLEAD_DEVICES"] == "2"
