"""Training jobs on a real Slurm whose nodes save to local disks."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.migrations import check_a_fork, check_checkpoints_are_carried
from tests.e2e.support.trained_line import check_result

from fairlead.job import checkpoint

pytestmark = pytest.mark.slow

OFTEN = {"FAIRLEAD_CHECKPOINT_S": "0.5"}


@pytest.fixture
def server(slurm_server: SlurmServer) -> SlurmServer:
    slurm_server.engine += f",node-dir={slurm_server.root}/local/{{node}}"
    return slurm_server


def local_dir(server: SlurmServer, node: str, job: str) -> Path:
    """Return the checkpoint directory of a job on a node."""
    (home,) = server.root.glob(f"local/{node}/fairlead-*")
    return home / "jobs" / job / "checkpoint"


def steps(directory: Path) -> int:
    latest = checkpoint.latest(str(directory))
    return -1 if latest is None else latest.steps


def test_jobs_migrate_between_nodes_that_save_to_local_disks(server: SlurmServer) -> None:
    gang, single = check_checkpoints_are_carried(server, ["n1", "n2"], "n3", "n4")
    for node, jobs in {"n1": [gang], "n2": [gang], "n3": [single], "n4": [gang, single]}.items():
        for job in jobs:
            assert local_dir(server, node, job).is_dir(), "it did not save there"
            assert not list(local_dir(server, node, job).glob("*ckpt*")), (
                "checkpoints are left on the node"
            )
    check_a_fork(server, single)


def test_a_job_resumes_from_the_last_checkpoint_that_left_its_dead_node(
    server: SlurmServer,
) -> None:
    server.silence_s = 10.0
    server.start(round_s=90.0)
    job = server.submit(
        "out", 500, workload="uneven", accelerators=["p100", "k80"], environment=OFTEN
    )
    shared = server.data / "jobs" / job / "checkpoint"
    server.client.post("/v1/nodes/n4/cordon")
    server.until(lambda: steps(shared) > 0, "a checkpoint to be transferred")
    (known,) = server.data.glob("leases/*/0/members.json")
    keeper = json.loads(known.read_text())["keeper"]
    os.kill(keeper, signal.SIGSTOP)  # it transfers nothing while the job continues to save
    local = local_dir(server, "n3", job)
    last = steps(shared)
    server.until(lambda: steps(local) > last + 20, "the node to have a newer one")
    assert steps(shared) == last
    server.client.post("/v1/nodes/n4/return")
    server.slurm.kill_node("n3")
    try:
        server.until(lambda: server.leases() == {job: ["n4"]}, "it to run elsewhere")
        done = server.client.wait(job, timeout_s=240)
    finally:
        server.bring_back("n3")
    assert (done["state"], done["steps_done"], done["failures"]) == ("finished", 500, 0)
    check_result(server.root / "out.0", 500)
    lost, *_ = [end["steps"] for end in server.log_events("lease.ended")]
    assert lost == last < steps(local)
