"""Nodes drained, returned and removed by an operator, and the removal of lease directories."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.files import parse_cluster, read_speeds
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.server.config.scheduling import build_scheduling_config, load_scheduling_config
from fairlead.store import Store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=1,k80=1").start()
    yield made
    made.clean_up()


def node_states(server: LiveServer) -> dict[str, str]:
    nodes = json.loads(server.cli("nodes", "--json").stdout)
    return {
        node["id"]: "drained" if node["drained"] else "up" if node["up"] else "down"
        for node in nodes
    }


def test_a_node_with_running_jobs_can_be_removed_only_after_a_drain(server: LiveServer) -> None:
    fast, slow = sorted(node_states(server), reverse=True)
    job = server.client.submit(["sleep", "600"], workload="big", accelerators=["v100"])["id"]
    until = time.monotonic() + 90
    while server.client.job(job)["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.1)
    refused = server.cli("nodes", "remove", fast, "--yes")
    assert refused.returncode == 1
    assert "drain it first" in refused.stderr
    assert server.cli("nodes", "drain", fast).stdout == f"{fast}: drained\n"
    assert "expected --yes" in server.cli("nodes", "remove", fast).stderr
    removed = server.cli("nodes", "remove", fast, "--yes")
    assert removed.returncode == 0
    assert f"1 job can run on no other node; add such devices or cancel: {job}" in removed.stderr
    assert node_states(server) == {slow: "up"}
    server.kill()
    server.start()  # with the same devices: the machine still has them
    assert node_states(server) == {slow: "up"}
    assert server.cli("nodes", "return", fast).returncode == 1
    refused = server.cli("submit", "--workload", "big", "--accelerators", "v100", "--", "true")
    assert refused.returncode == 1
    done = server.client.submit(["true"], workload="small")["id"]
    assert server.client.wait(done, timeout_s=90)["state"] == "finished"
    assert server.cli("nodes", "restore", fast).stdout == f"{fast}: drained\n"
    assert node_states(server) == {slow: "up", fast: "drained"}
    assert server.cli("nodes", "return", fast).stdout == f"{fast}: up\n"
    assert "is not removed" in server.cli("nodes", "restore", fast).stderr
    until = time.monotonic() + 90
    while server.client.job(job)["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_restart_with_other_devices_loses_and_adds_devices(server: LiveServer) -> None:
    job = server.client.submit(["sleep", "600"], workload="big", accelerators=["v100"])["id"]
    until = time.monotonic() + 240
    while server.client.job(job)["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.1)
    server.stop()
    server.devices = "k80=3"
    server.start()
    while server.client.job(job)["state"] != "queued":
        assert time.monotonic() < until, server.client.job(job)
        time.sleep(0.1)
    assert node_states(server) == {"v100-0": "down", "k80-0": "up", "k80-0+1": "up"}
    gang = server.client.submit(["true"], workload="big", gang=2, accelerators=["k80"])["id"]
    assert server.client.wait(gang, timeout_s=90)["state"] == "finished"
    server.stop()
    server.devices = "v100=2,k80=2"
    server.start()
    while server.client.job(job)["state"] != "running":
        assert time.monotonic() < until, server.client.job(job)
        time.sleep(0.1)
    rows = {node["id"]: node for node in server.client.get("/v1/nodes")}
    assert {name: row["taken"] for name, row in rows.items()} == {
        "v100-0": 0,
        "k80-0": 0,
        "k80-0+1": 1,
        "v100-0+1": 0,
    }


def test_directories_of_ended_leases_are_removed_and_those_of_live_keepers_stay(
    server: LiveServer,
) -> None:
    python, train = sys.executable, str(server.root / "train.py")
    running = server.client.submit(["sleep", "600"], workload="small", accelerators=["k80"])["id"]
    command = [python, train, "50", str(server.root / "out")]
    job = server.client.submit(command, workload="big", steps=50, accelerators=["v100"])["id"]
    assert server.client.wait(job, timeout_s=120)["state"] == "finished"
    until = time.monotonic() + 90
    while server.client.job(running)["state"] != "running" or len(leases(server)) != 1:
        assert time.monotonic() < until, leases(server)
        time.sleep(0.1)
    server.kill()
    (server.data / "leases" / "99").mkdir()  # left by a server that died before the cleanup
    server.start()
    (left,) = leases(server)
    assert lease_dir.is_alive(left)


def leases(server: LiveServer) -> list[Path]:
    return list((server.data / "leases").iterdir())


def test_a_node_that_comes_back_stays_drained_until_an_operator_returns_it(
    tmp_path: Path,
) -> None:
    cluster = parse_cluster("v100=1,k80=1")
    node = cluster.nodes[0].id
    (tmp_path / "speeds.csv").write_text(
        "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
        "big,1,v100,,,1,\nbig,1,k80,,,1,\n"
    )

    async def begin() -> Live:
        store = Store(f"sqlite:///{tmp_path / 'fairlead.db'}")
        token = store.acquire("test")
        assert token is not None
        config = LiveConfig(
            cluster=cluster,
            scheduling=build_scheduling_config(
                "max-min", None, 2.0, read_speeds(str(tmp_path / "speeds.csv"))
            ),
            load_scheduling=load_scheduling_config,
            data=tmp_path,
            environment=lambda *_: {},
        )
        live = Live(store, LocalEngine(tmp_path, cluster), config, token)
        await live.start()
        await live.write([])
        return live

    async def end(live: Live) -> None:
        await live.stop()
        live.store.close()

    async def down_after(live: Live, report: NodeDown | NodeUp) -> set[int]:
        live._report(report)
        await live.write([])
        return live.scheduler.nodes.down

    async def scene() -> None:
        live = await begin()
        assert await down_after(live, NodeDown(node)) == {0}
        assert await down_after(live, NodeUp(node)) == set()
        await live.nodes.drain(node, "operator")
        assert await down_after(live, NodeDown(node)) == {0}
        assert await down_after(live, NodeUp(node)) == {0}
        await end(live)
        live = await begin()
        assert await down_after(live, NodeUp(node)) == {0}  # a drain survives a restart
        assert await down_after(live, NodeDown(node)) == {0}
        await live.nodes.return_node(node, "operator")
        assert live.scheduler.nodes.down == {0}  # the engine does not report it yet
        assert await down_after(live, NodeUp(node)) == set()
        await live.nodes.drain(node, "operator")
        await live.nodes.return_node(node, "operator")
        assert live.scheduler.nodes.down == set()
        await end(live)

    asyncio.run(scene())
