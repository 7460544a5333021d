"""What goes wrong on a real Slurm: nodes die, are drained or cut off, servers are killed."""

import time
from functools import partial

import pytest
from tests.e2e.slurm_server import SlurmServer
from tests.e2e.test_live import check_result

pytestmark = pytest.mark.slow


def test_a_lost_node_s_gang_runs_elsewhere_soon_and_nothing_is_lost(
    slurm_server: SlurmServer,
) -> None:
    server = slurm_server.start(round_s=20.0)
    gang = server.submit("gang", 2500, workload="big", gang=3, accelerators=["v100", "k80"])
    server.until(lambda: gang in server.leases(), "the gang to run")
    time.sleep(3.0)
    victim = server.leases()[gang][-1]
    server.slurm.kill_node(victim)
    try:
        taken = server.until(
            lambda: gang in server.leases() and victim not in server.leases()[gang],
            "the gang to run elsewhere",
        )
        assert taken < 15.0, taken
        job = server.client.wait(gang, timeout_s=120)
        assert (job["state"], job["steps_done"]) == ("finished", 2500), server.log()
        assert job["failures"] == 0
        check_result(server.root / "gang.0", 2500)
    finally:
        server.slurm.start_node(victim)


def test_a_drained_node_is_left_with_a_checkpoint_and_used_again(
    slurm_server: SlurmServer,
) -> None:
    server = slurm_server.start(round_s=20.0)
    jobs = {server.submit(f"o{i}", 2000, workload="big", accelerators=["p100"]) for i in (0, 1)}
    server.until(lambda: jobs <= set(server.leases()), "the jobs to run")
    time.sleep(2.0)
    server.slurm.run("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    try:
        server.until(lambda: not server.leases(), "the jobs to leave")
        for job in jobs:
            server.until(partial(server.is_in_state, job, "queued"), "it to wait")
            assert server.client.job(job)["steps_done"] > 0
    finally:
        server.slurm.run("scontrol", "update", "nodename=n3", "state=resume")
    server.until(lambda: jobs <= set(server.leases()), "the jobs to run again")
    for job in jobs:
        assert server.client.wait(job, timeout_s=90)["steps_done"] == 2000
    assert {server.client.job(job)["failures"] for job in jobs} == {0}


def test_a_killed_server_s_leases_go_on_and_are_adopted(slurm_server: SlurmServer) -> None:
    server = slurm_server.start(round_s=20.0)
    ids = [server.submit(f"o{i}", 1500, workload="small", gang=1 + i) for i in range(3)]
    server.until(lambda: set(ids) <= set(server.leases()), "the jobs to run")
    before = {path.name for path in (server.data / "leases").iterdir()}
    for pause in (0.5, 2.0):
        server.kill()
        time.sleep(pause)
        server.start(round_s=20.0)
    for job_id in ids:
        job = server.client.wait(job_id, timeout_s=90)
        assert (job["state"], job["steps_done"]) == ("finished", 1500)
    leases = {path.name for path in (server.data / "leases").iterdir()}
    assert len(leases) <= 2 * len(before), "leases were started again"
