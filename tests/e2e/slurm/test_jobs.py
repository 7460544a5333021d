"""Training jobs on a real Slurm of four nodes: multi-node gangs, migration, foreign jobs."""

import time

import pytest
from tests.e2e.slurm.prediction import course
from tests.e2e.slurm.server import SlurmServer, note
from tests.e2e.slurm.ten_jobs import run_ten
from tests.e2e.support.migrations import check_a_move_to_another_accelerator

pytestmark = pytest.mark.slow

ROUND_S = 6.0


@pytest.mark.parametrize("policy", ["gandiva-fair", "hadar"])
def test_jobs_of_two_tenants_make_exactly_their_steps(
    slurm_server: SlurmServer, policy: str
) -> None:
    server = slurm_server.start(policy=policy, round_s=ROUND_S)
    run_ten(server, longer=0.5)
    server.until(
        lambda: not list((server.data / "leases").iterdir()), "all lease directories to be removed"
    )


def test_jobs_make_exactly_their_steps_in_the_predicted_time(slurm_server: SlurmServer) -> None:
    server = slurm_server.start(policy="max-min", round_s=ROUND_S)
    jobs = run_ten(server)
    assert sum(job["preemptions"] for job in jobs) > 0
    server.until(
        lambda: not list((server.data / "leases").iterdir()), "all lease directories to be removed"
    )
    run = course(server, "max-min", ROUND_S)
    predicted, drawn = run.predicted_s(), run.predictions_s()
    note(
        f"{run.took_s:.1f} s, predicted {predicted:.1f} s"
        f" ({min(drawn):.1f} to {max(drawn):.1f} s);"
        f" {run.lease_s:.2f} s per lease"
    )
    assert len(run.leases) >= len(jobs)
    # In a run of five rounds, one job that ends just after its round costs a tenth of the time, so
    # the run must be near one of the possible courses; it was among them at loads of 5 to 18.
    # benchmarks/slurm_prediction.py measures the accuracy for short rounds.
    assert 0.8 * min(drawn) <= run.took_s <= 1.2 * max(drawn)


def test_other_users_keep_their_device_and_leases_use_the_rest_of_the_node(
    slurm_server: SlurmServer,
) -> None:
    server, slurm = slurm_server, slurm_server.slurm
    foreign = slurm.run(
        "sbatch", "--parsable", "--job-name=theirs", "--nodelist=n4", "--gres=gpu:k80:1",
        "--output=/dev/null", "--wrap=sleep 300",
    ).strip()  # fmt: skip

    def foreign_job_runs() -> bool:
        return slurm.run("squeue", "-h", "-j", foreign, "-o", "%T").strip() == "RUNNING"

    server.until(foreign_job_runs, "the foreign job to run")
    server.start(round_s=180.0)

    def n4() -> tuple[bool, int]:
        (node,) = [node for node in server.client.get("/v1/nodes") if node["id"] == "n4"]
        return node["up"], node["taken"]

    server.until(lambda: n4() == (True, 1), "the taken device to be reported")
    three = server.submit("three", 100_000, workload="small", gang=3, accelerators=["k80"])
    server.until(lambda: server.leases() == {three: ["n4"]}, "three of its four devices in use")
    single = server.submit("single", 100, workload="small", accelerators=["k80"])
    time.sleep(2.0)
    assert server.client.job(single)["state"] == "queued"
    slurm.run("scancel", foreign)
    shown: list[str] = []

    def foreign_job_has_ended() -> bool:
        shown.append(slurm.run("scontrol", "show", "job", "--oneliner", foreign))
        return "JobState=CANCELLED" in shown[-1]  # by this test: the server has not touched it

    server.until(foreign_job_has_ended, "the foreign job to end")
    assert "Restarts=0" in shown[-1]
    server.until(lambda: single in server.leases(), "the released device to be used")
    done = server.client.wait(single, timeout_s=120)
    assert (done["state"], done["steps_done"], done["leases"]) == ("finished", 100, 1)
    unharmed = server.client.job(three)
    assert (unharmed["state"], unharmed["leases"], unharmed["failures"]) == ("running", 1, 0)
    assert unharmed["steps_done"] > 0


def test_a_job_migrates_to_another_accelerator_within_five_seconds(
    slurm_server: SlurmServer,
) -> None:
    check_a_move_to_another_accelerator(slurm_server, ("n1", "n2"), "n4")
