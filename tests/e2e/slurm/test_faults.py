"""Faults on a real Slurm: nodes die or are drained, servers and controllers are killed."""

from functools import partial
from pathlib import Path

import pytest
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.trained_line import check_result

from fairlead.private_clusters.slurm import SlurmCluster, missing

pytestmark = pytest.mark.slow


def test_a_lost_node_s_gang_soon_resumes_elsewhere_without_losing_steps(
    slurm_server: SlurmServer,
) -> None:
    slurm_server.silence_s = 5.0
    server = slurm_server.start(round_s=90.0)
    gang = server.submit("gang", 1500, workload="small", gang=3, accelerators=["v100", "k80"])
    server.until(lambda: gang in server.leases(), "the gang to run")
    server.until_steps(gang, made=100)
    victim = server.leases()[gang][-1]
    server.slurm.kill_node(victim)
    try:
        taken = server.until(
            lambda: gang in server.leases() and victim not in server.leases()[gang],
            "the gang to run elsewhere",
        )
        assert taken < 45.0, taken  # ten on a quiet machine; a round takes 90
        job = server.client.wait(gang, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", 1500), server.log()
        assert job["failures"] == 0
        check_result(server.root / "gang.0", 1500)
    finally:
        server.bring_back(victim)


def test_jobs_leave_a_drained_node_with_a_checkpoint_and_return_to_it(
    slurm_server: SlurmServer,
) -> None:
    server = slurm_server.start(round_s=20.0)
    jobs = {server.submit(f"o{i}", 1500, workload="small", accelerators=["p100"]) for i in (0, 1)}
    server.until(lambda: jobs <= set(server.leases()), "the jobs to run")
    server.until_steps(*jobs)
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
        assert server.client.wait(job, timeout_s=240)["steps_done"] == 1500
    assert {server.client.job(job)["failures"] for job in jobs} == {0}


def test_jobs_survive_the_death_of_server_and_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing():
        pytest.skip(missing())
    # A killed controller loses its latest changes.
    slurm = SlurmCluster(tmp_path / "slurm", patience_s=120.0)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    server = SlurmServer(tmp_path, slurm)
    try:
        slurm.start()
        server.start(round_s=90.0)
        ids = [
            server.submit(f"o{i}", 1000 + 300 * i, workload="small", gang=1 + i) for i in (0, 1)
        ]
        server.until(lambda: set(ids) <= set(server.leases()), "the jobs to run")
        server.kill()
        server.start(round_s=90.0)
        server.kill()
        slurm.kill_daemon("slurmctld")
        server.start(round_s=90.0)  # it recovers the leases without the controller
        for index, job_id in enumerate(ids):
            job, steps = server.client.wait(job_id, timeout_s=240), 1000 + 300 * index
            assert (job["state"], job["steps_done"]) == ("finished", steps)
            for rank in range(1 + index):
                check_result(server.root / f"o{index}.{rank}", steps)
            assert job["leases"] == 1, "it was restarted"
        late = server.submit("late", 200, workload="small")
        slurm.start_controller()
        job = server.client.wait(late, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", 200)
    finally:
        server.stop()
        slurm.stop()
