"""Training jobs on a real Slurm whose nodes save on disks of their own."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.e2e.server.test_live import check_result
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.migrations import check_checkpoints_are_carried

from fairlead.job import checkpoint

pytestmark = pytest.mark.slow

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
    gang, one = check_checkpoints_are_carried(server, ["n1", "n2"], "n3", "n4")
    for node, jobs in {"n1": [gang], "n2": [gang], "n3": [one], "n4": [gang, one]}.items():
        for job in jobs:
            assert own(server, node, job).is_dir(), "it saved there"
            assert not list(own(server, node, job).glob("*ckpt*")), "all was carried and cleared"


def test_a_dead_node_s_newest_checkpoint_is_lost_and_the_last_carried_one_counts(
    server: SlurmServer,
) -> None:
    server.start(round_s=20.0)
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
        server.bring_back("n3")
    assert (found["state"], found["steps_done"], found["leases"]) == ("finished", 500, 2)
    assert found["failures"] == 0
    check_result(server.root / "out.0", 500)
    lost, _ = [end["steps"] for end in server.said("lease.ended")]
    assert lost == last < steps(there)
