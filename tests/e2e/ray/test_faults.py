"""Faults on a real Ray: nodes die or are partitioned, heads and servers are killed."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.support.cluster_server import note
from tests.e2e.support.trained_line import check_result
from tests.support.waiting import until

from fairlead.engines.base import Ended, NodeDown, NodeJoined, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray.engine import RayEngine
from fairlead.job import checkpoint
from fairlead.model.cluster import Node
from fairlead.private_clusters.ray import HEAD, RayCluster, missing
from fairlead.testing.engines.harness import EngineFixture, EngineHarness

pytestmark = pytest.mark.slow


def test_a_lost_node_s_gang_soon_resumes_elsewhere(ray_server: RayServer) -> None:
    server = ray_server.start(round_s=90.0)
    gang = server.submit("gang", 2000, workload="small", gang=3, accelerators=["v100", "k80"])
    server.until(lambda: gang in server.leases(), "the gang to run")
    assert server.leases()[gang] == ["n1", "n4"]
    server.until_steps(gang)
    server.ray.kill_node("n1")
    taken = server.until(lambda: server.leases().get(gang) == ["n3"], "it to run elsewhere")
    note(f"gang resumed elsewhere {taken:.1f} s after its node was killed")
    assert taken < 60.0  # four on a quiet machine; a round takes 90
    job = server.client.wait(gang, timeout_s=240)
    assert (job["state"], job["steps_done"], job["failures"]) == ("finished", 2000, 0)
    check_result(server.root / "gang.0", 2000)
    check_node_with_other_devices(server)


def check_node_with_other_devices(server: RayServer) -> None:
    """Check that a node which comes back with one old device and two new ones uses all three."""
    ray, full = server.ray, server.ray.nodes

    def counts() -> dict[str, tuple[bool, int]]:
        nodes = server.client.get("/v1/nodes")
        return {node["id"]: (node["up"], node["taken"]) for node in nodes if "n2" in node["id"]}

    server.until(lambda: counts() == {"n2": (True, 0)}, "the node as it was")
    server.client.post("/v1/nodes/n3/cordon")
    ray.kill_node("n2")
    server.until(lambda: not counts()["n2"][0], "the node to be down")
    other = ("p100", "k80", "k80")
    ray.nodes = [replace(node, devices=other) if node.id == "n2" else node for node in full]
    try:
        ray.start_node("n2")
        changed = {"n2": (True, 1), "n2+1": (True, 0)}
        server.until(lambda: counts() == changed, "the node with other devices", 120.0)
        pair = server.submit("pair", 200, workload="small", gang=2, accelerators=["k80"])
        assert server.client.wait(pair, timeout_s=120)["state"] == "finished", server.log()
        check_result(server.root / "pair.1", 200)
    finally:
        ray.kill_node("n2")
        ray.nodes = full


def test_jobs_survive_the_death_of_their_node_agent_but_not_of_the_raylet(
    ray_server: RayServer,
) -> None:
    server, ray = ray_server.start(round_s=20.0), ray_server.ray
    server.client.post("/v1/nodes/n3/cordon")
    job = server.submit("out", 1500, workload="uneven", accelerators=["p100", "k80"])
    server.until(lambda: server.client.job(job)["steps_done"] > 10, "it to run")
    (known,) = server.nodes.glob("n2/leases/*/members.json")
    members = json.loads(known.read_text())
    (agent,) = ray.actors("n2")
    os.kill(agent, signal.SIGKILL)
    restart_s = server.until(lambda: ray.actors("n2") not in ([], [agent]), "the next agent")
    steps = server.client.job(job)["steps_done"]
    server.until(lambda: server.client.job(job)["steps_done"] > steps, "it to continue")
    assert server.leases() == {job: ["n2"]}
    assert json.loads(known.read_text()) == members
    assert server.client.job(job)["leases"] == 1
    note(f"the next agent ran {restart_s:.1f} s after the first was killed")
    # Without its raylet, though, its devices may be given to others.
    server.client.post("/v1/nodes/n3/return")
    ray.kill_daemons("n2")
    pids = [members["keeper"], *members["members"]]
    ended_s = server.until(
        lambda: not any(map(lease_dir.process_start_ticks, pids)), "its processes to end"
    )
    note(f"its processes ended {ended_s:.1f} s after the raylet was killed")
    assert ended_s < 60.0  # two on a quiet machine
    server.until(lambda: server.leases() == {job: ["n3"]}, "it to run elsewhere")
    done = server.client.wait(job, timeout_s=240)
    assert (done["state"], done["steps_done"], done["failures"]) == ("finished", 1500, 0)
    check_result(server.root / "out.0", 1500)


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[RayServer]:
    """A server on a separate Ray cluster of the head and one more node."""
    if missing():
        pytest.skip(missing())
    ray = RayCluster((Node("n3", ("k80", "k80"), "r1"), Node(HEAD, ("v100",), "r1")))
    server = RayServer(tmp_path, ray)
    try:
        ray.start()
        yield server
    finally:
        server.stop()
        ray.stop()


def test_no_job_is_lost_when_ray_restarts_without_its_state(small_server: RayServer) -> None:
    server, ray = small_server.start(round_s=40.0), small_server.ray
    ids = {
        server.submit("one", 2500, workload="small", accelerators=["v100"]): ("one", 1),
        server.submit("two", 2000, workload="small", gang=2, accelerators=["k80"]): ("two", 2),
    }
    server.until(lambda: set(ids) <= set(server.leases()), "both to run")
    server.until_steps(*ids)
    began = time.monotonic()
    ray.restart_without_state()
    for job_id, (name, ranks) in ids.items():
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", job["total_steps"]), server.log()
        assert job["failures"] == 0
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", job["total_steps"])
    note(f"both jobs finished {time.monotonic() - began:.1f} s after the head was killed")


def test_no_job_is_lost_when_node_head_and_server_are_killed_at_once(
    ray_server: RayServer,
) -> None:
    server, ray = ray_server.start(round_s=20.0), ray_server.ray
    ids = {
        server.submit("g", 1200, workload="small", gang=3, accelerators=["v100", "k80"]): ("g", 3),
        server.submit("p", 800, workload="small", accelerators=["p100", "k80"]): ("p", 1),
        server.submit("k", 900, workload="small", gang=2, accelerators=["k80"]): ("k", 2),
    }
    server.until(lambda: set(ids) <= set(server.leases()), "all to run")
    server.until_steps(*ids)
    server.kill()
    ray.kill_node("n2")
    ray.kill_node(HEAD)
    ray.start_node(HEAD)
    server.start(round_s=20.0)
    for job_id, (name, ranks) in ids.items():
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["failures"]) == ("finished", 0), server.log()
        assert job["steps_done"] == job["total_steps"]
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", job["total_steps"])


def test_a_private_ray_whose_head_died_serves_the_next_test(ray: RayCluster) -> None:
    """A raylet that got no CPU for too long is dead to Ray, and exits."""
    dead = ray.raylet(HEAD)
    os.kill(dead, signal.SIGKILL)
    until(lambda: not ray.is_up(HEAD), "the raylet to die")
    ray.clear()
    assert ray.raylet(HEAD) != dead

    async def nodes() -> set[str]:
        engine = RayEngine(ray.root / "data", **ray.options)
        return {node.id for node in (await engine.inventory()).nodes}

    until(lambda: asyncio.run(nodes()) == {"n1", "n2", "n3", "n4"}, "all nodes")


WRITER = """
import sys, time
from fairlead.job import checkpoint
where, lease = sys.argv[1], 1
for step in range(1, 400):
    time.sleep(0.25)
    try:
        checkpoint.write(where, lease, step, 0, b"x")
        checkpoint.commit(where, lease, step, 1)
    except checkpoint.FencedError as error:
        open(sys.argv[2], "w").write(str(error))
        break
time.sleep(600)
"""


def test_a_lost_node_s_writer_is_fenced_and_killed_when_the_node_returns(
    ray: RayCluster, tmp_path: Path
) -> None:
    fenced = tmp_path / "fenced"

    async def scene() -> Ended:
        engine = RayEngine(tmp_path / "data", **ray.options)
        rig = EngineFixture(make=lambda: engine, root=tmp_path, cluster=ray.cluster)
        bench = EngineHarness(rig, engine)
        await engine.adopt(())
        order = bench.order(1, [("n2", 0)])
        command = (sys.executable, "-c", WRITER, order.checkpoint_dir, str(fenced))
        await engine.launch(replace(order, command=command))
        saved = Path(order.checkpoint_dir, "latest.json")
        await bench.until(saved.exists, "it to run")
        # As if the node were partitioned: it is silent, and its job continues to run.
        raylet = ray.raylet("n2")
        os.kill(raylet, signal.SIGSTOP)
        try:
            await bench.node(NodeDown("n2"), 90.0)
            ended = await bench.ended(1)
            await bench.until(fenced.exists, "the writer to be fenced")
        finally:
            os.kill(raylet, signal.SIGCONT)
        latest = checkpoint.latest(order.checkpoint_dir)
        assert latest is not None
        assert latest.steps == ended.steps
        await bench.until(lambda: not _is_running(order.checkpoint_dir), "the writer to be killed")
        await asyncio.to_thread(ray.kill_node, "n2")
        # An engine that starts now does not know the node yet.
        other = EngineHarness(rig, RayEngine(tmp_path / "other", **ray.options))
        assert "n2" not in {node.id for node in (await other.engine.inventory()).nodes}
        await other.engine.adopt(())
        await asyncio.to_thread(ray.start_node, "n2")
        await bench.node(NodeUp("n2"), 60.0)
        new = Node("n2", ("p100", "p100"), "r1")
        await other.until(lambda: NodeJoined(new) in other.seen, "the new node")
        await other.start(5, [("n2", 1)], "exit", 0)
        assert (await other.ended(5)).ending == "finished"
        await other.close()
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert (ended.steps or 0) > 0
    assert "may write" in fenced.read_text()


def _is_running(checkpoint_dir: str) -> bool:
    """Return whether a process with this directory as an argument runs."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if checkpoint_dir.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False
