"""What goes wrong on a real Ray: nodes die or are cut off, the head dies, servers are killed."""

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
from tests.e2e.server.test_live import check_result
from tests.e2e.support.cluster_server import note

from fairlead.engines.base import Ended, NodeDown, NodeJoined, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray.engine import RayEngine
from fairlead.job import checkpoint
from fairlead.model.cluster import Node
from fairlead.private_clusters.ray import HEAD, RayCluster, missing
from fairlead.testing.engines.bench import Bench, Rig

pytestmark = pytest.mark.slow


def test_a_lost_node_s_gang_runs_elsewhere_within_ten_seconds(ray_server: RayServer) -> None:
    server = ray_server.start(round_s=20.0)
    gang = server.submit("gang", 800, workload="small", gang=3, accelerators=["v100", "k80"])
    server.until(lambda: gang in server.leases(), "the gang to run")
    assert server.leases()[gang] == ["n1", "n4"]
    time.sleep(1.0)
    server.ray.kill_node("n1")
    taken = server.until(lambda: server.leases().get(gang) == ["n3"], "it to run elsewhere")
    note(f"the gang runs elsewhere {taken:.1f} s after its node was killed")
    assert taken < 10.0
    job = server.client.wait(gang, timeout_s=120)
    assert (job["state"], job["steps_done"], job["failures"]) == ("finished", 800, 0)
    check_result(server.root / "gang.0", 800)


def test_jobs_outlive_our_actor_on_their_node_but_not_its_ray(ray_server: RayServer) -> None:
    server, ray = ray_server.start(round_s=20.0), ray_server.ray
    server.client.post("/v1/nodes/n3/cordon")
    job = server.submit("out", 500, workload="uneven", accelerators=["p100", "k80"])
    server.until(lambda: server.client.job(job)["steps_done"] > 10, "it to run")
    (known,) = server.nodes.glob("n2/leases/*/members.json")
    members = json.loads(known.read_text())
    (actor,) = ray.actors("n2")
    os.kill(actor, signal.SIGKILL)
    heard = server.until(lambda: ray.actors("n2") not in ([], [actor]), "the next actor")
    steps = server.client.job(job)["steps_done"]
    server.until(lambda: server.client.job(job)["steps_done"] > steps, "it to go on")
    assert server.leases() == {job: ["n2"]}
    assert json.loads(known.read_text()) == members
    assert server.client.job(job)["leases"] == 1
    note(f"the next actor is there {heard:.1f} s after the first was killed")
    # With its Ray, though, whoever asks next may be given its devices.
    server.client.post("/v1/nodes/n3/return")
    ray.kill_daemons("n2")
    pids = [members["keeper"], *members["members"]]
    ended = server.until(lambda: not any(map(lease_dir.started, pids)), "its processes to end")
    note(f"its processes have ended {ended:.1f} s after the node's Ray was killed")
    assert ended < 5.0
    server.until(lambda: server.leases() == {job: ["n3"]}, "it to run elsewhere")
    found = server.client.wait(job, timeout_s=60)
    assert (found["state"], found["steps_done"], found["failures"]) == ("finished", 500, 0)
    assert found["leases"] == 2
    check_result(server.root / "out.0", 500)


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[RayServer]:
    """A server on a Ray of its own, of the head and one more node."""
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


def test_a_ray_that_returns_without_its_state_loses_no_job(small_server: RayServer) -> None:
    server, ray = small_server.start(round_s=40.0), small_server.ray
    ids = {
        server.submit("one", 500, workload="small", accelerators=["v100"]): ("one", 1),
        server.submit("two", 500, workload="small", gang=2, accelerators=["k80"]): ("two", 2),
    }
    server.until(lambda: set(ids) <= set(server.leases()), "both to run")
    time.sleep(1.0)
    began = time.monotonic()
    ray.restart_without_state()
    for job_id, (name, ranks) in ids.items():
        job = server.client.wait(job_id, timeout_s=60)
        assert (job["state"], job["steps_done"]) == ("finished", 500), server.log()
        assert (job["leases"], job["failures"]) == (2, 0)
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", 500)
    note(f"both jobs were done {time.monotonic() - began:.1f} s after the head was killed")


def test_node_head_and_server_killed_at_once_lose_no_job(ray_server: RayServer) -> None:
    server, ray = ray_server.start(round_s=20.0), ray_server.ray
    ids = {
        server.submit("g", 1200, workload="small", gang=3, accelerators=["v100", "k80"]): ("g", 3),
        server.submit("p", 800, workload="small", accelerators=["p100", "k80"]): ("p", 1),
        server.submit("k", 900, workload="small", gang=2, accelerators=["k80"]): ("k", 2),
    }
    server.until(lambda: set(ids) <= set(server.leases()), "all to run")
    time.sleep(1.5)
    server.kill()
    ray.kill_node("n2")
    ray.kill_node(HEAD)
    ray.start_node(HEAD)
    server.start(round_s=20.0)
    for job_id, (name, ranks) in ids.items():
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["failures"]) == ("finished", 0), server.log()
        assert job["steps_done"] == job["total_steps"]
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", job["total_steps"])


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


def test_a_lost_node_s_writer_is_refused_and_ended_when_the_node_returns(
    ray: RayCluster, tmp_path: Path
) -> None:
    refused = tmp_path / "refused"

    async def scene() -> Ended:
        engine = RayEngine(tmp_path / "data", **ray.options)
        rig = Rig(make=lambda: engine, root=tmp_path, cluster=ray.cluster)
        bench = Bench(rig, engine)
        await engine.adopt(())
        order = bench.order(1, [("n2", 0)])
        command = (sys.executable, "-c", WRITER, order.checkpoint_dir, str(refused))
        await engine.launch(replace(order, command=command))
        saved = Path(order.checkpoint_dir, "latest.json")
        await bench.until(saved.exists, "it to run")
        # As if the node were cut off: Ray hears nothing of it, and its job goes on.
        raylet = ray.raylet("n2")
        os.kill(raylet, signal.SIGSTOP)
        try:
            await bench.node(NodeDown("n2"))
            ended = await bench.ended(1)
            await bench.until(refused.exists, "the writer to be refused")
        finally:
            os.kill(raylet, signal.SIGCONT)
        found = checkpoint.latest(order.checkpoint_dir)
        assert found is not None
        assert found.steps == ended.steps
        await bench.until(lambda: not _lives(order.checkpoint_dir), "the writer to be ended")
        await asyncio.to_thread(ray.kill_node, "n2")
        # One that starts now does not know the node yet.
        other = Bench(rig, RayEngine(tmp_path / "other", **ray.options))
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
    assert "may write" in refused.read_text()


def _lives(checkpoint_dir: str) -> bool:
    """Tell whether a process runs that was given this directory."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if checkpoint_dir.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False
