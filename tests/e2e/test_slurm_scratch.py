"""Training jobs on a real Slurm whose nodes save on disks of their own."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.e2e.slurm_server import SlurmServer, note
from tests.e2e.test_live import check_result

from fairlead.job import checkpoint

pytestmark = pytest.mark.slow

SIZE = 18 << 20
OFTEN = {"FAIRLEAD_CHECKPOINT_S": "0.5"}


@pytest.fixture
def server(slurm_server: SlurmServer) -> SlurmServer:
    slurm_server.engine += f",node-dir={slurm_server.root}/own/{{node}}"
    return slurm_server


def own(server: SlurmServer, node: str, job: str) -> Path:
    """Return where a job saves on a node."""
    (home,) = server.root.glob(f"own/{node}/fairlead-*")
    return home / "jobs" / job / "checkpoint"


def steps(directory: Path) -> int:
    found = checkpoint.latest(str(directory))
    return -1 if found is None else found.steps


def test_jobs_move_between_nodes_that_save_on_disks_of_their_own(server: SlurmServer) -> None:
    server.start(round_s=60.0)
    gang = server.submit("gang", 1200, workload="small", gang=3, accelerators=["v100", "k80"])
    one = server.submit("one", 900, SIZE, workload="small", accelerators=["p100", "k80"])
    server.until(lambda: server.client.job(one)["steps_done"] > 50, "it to run")
    server.until(lambda: server.leases() == {gang: ["n1", "n2"], one: ["n3"]}, "both to run")
    began = time.time()
    for node in ("n1", "n2", "n3"):
        server.client.post(f"/v1/nodes/{node}/drain")
    server.until(lambda: server.leases() == {gang: ["n4"], one: ["n4"]}, "both to move")
    for node, moved in (("n1", gang), ("n2", gang), ("n3", one)):
        assert not list(own(server, node, moved).glob("*.ckpt*")), "all was carried and cleared"
    for job_id, name, made, ranks in ((gang, "gang", 1200, 3), (one, "one", 900, 1)):
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["steps_done"], job["leases"]) == ("finished", made, 2)
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", made)
        first, last = [end["steps"] for end in server.said("lease.ended") if end["job"] == job_id]
        assert 0 < first < last == made, "it went on from what it had saved elsewhere"
    went_on = server.made("one")[1]["began"] - began
    note(f"with a checkpoint that had to be carried it made its next step after {went_on:.2f} s")
    assert went_on < 10.0


def test_a_dead_node_s_newest_checkpoint_is_lost_and_the_last_carried_one_counts(
    server: SlurmServer,
) -> None:
    server.start(round_s=60.0)
    job = server.submit(
        "out", 500, workload="uneven", accelerators=["p100", "k80"], environment=OFTEN
    )
    carried = server.data / "jobs" / job / "checkpoint"
    server.client.post("/v1/nodes/n4/cordon")
    server.until(lambda: steps(carried) > 0, "a checkpoint to be carried")
    (known,) = server.data.glob("leases/*/0/members.json")
    keeper = json.loads(known.read_text())["keeper"]
    os.kill(keeper, signal.SIGSTOP)  # who carries stands still; the job goes on and saves
    there = own(server, "n3", job)
    last = steps(carried)
    server.until(lambda: steps(there) > last + 20, "the node to have a newer one")
    assert steps(carried) == last
    server.client.post("/v1/nodes/n4/return")
    server.slurm.kill_node("n3")
    try:
        server.until(lambda: server.leases() == {job: ["n4"]}, "it to run elsewhere")
        found = server.client.wait(job, timeout_s=60)
    finally:
        server.slurm.start_node("n3")
        for state in ("down", "resume"):  # so that Slurm need not find out by itself
            server.slurm.run("scontrol", "update", "nodename=n3", f"state={state}", "reason=test")
    assert (found["state"], found["steps_done"], found["leases"]) == ("finished", 500, 2)
    assert found["failures"] == 0
    check_result(server.root / "out.0", 500)
    lost, _ = [end["steps"] for end in server.said("lease.ended")]
    assert lost == last < steps(there)
