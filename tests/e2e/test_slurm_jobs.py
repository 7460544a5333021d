"""Training jobs on a real Slurm of four nodes: gangs over nodes, moves, others' jobs there."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.slurm_prediction import lease_s, measured, predicted_makespan_s
from tests.e2e.slurm_server import SlurmServer
from tests.e2e.test_live import check_result

pytestmark = pytest.mark.slow

ROUND_S = 6.0


def submit_ten(server: SlurmServer) -> dict[str, dict[str, Any]]:
    """Submit ten jobs of two tenants, gangs of one, two and three; return id → settings."""
    made = {}
    for number in range(10):
        gang = 3 if number % 4 == 0 else 1 + number % 2
        settings: dict[str, Any] = {
            "workload": ("big", "small")[number % 2],
            "gang": gang,
            "tenant": ("red", "blue")[number % 2],
        }
        if number == 4:  # three devices, two on a node: over nodes or not at all
            settings["accelerators"] = ["v100"]
        made[server.submit(f"out{number}", 500 + 40 * number, **settings)] = settings
    return made


@pytest.mark.parametrize("policy", ["max-min", "gandiva-fair", "hadar"])
def test_jobs_of_two_tenants_finish_exactly_and_when_the_simulator_says(
    slurm_server: SlurmServer, policy: str, record_property: Callable[[str, object], None]
) -> None:
    server = slurm_server.start(policy=policy, round_s=ROUND_S)
    made = submit_ten(server)
    jobs = []
    for number, (job_id, settings) in enumerate(made.items()):
        job, steps = server.client.wait(job_id, timeout_s=120), 500 + 40 * number
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(settings["gang"]):
            check_result(server.root / f"out{number}.{rank}", steps)
        jobs.append({**job, "accelerators": settings.get("accelerators")})
    nodes = [one["nodes"] for one in server.said("slurm.submitted")]
    assert any(len(some) > 1 for some in nodes), "no gang ran over nodes"
    if policy == "max-min":
        assert sum(job["preemptions"] for job in jobs) > 0
    # The simulator knows the speeds and what a lease costs besides its steps.
    took = max(job["ended_at"] for job in jobs) - min(job["submitted_at"] for job in jobs)
    leases = measured(server)
    said = predicted_makespan_s(server, jobs, policy, ROUND_S, lease_s(leases))
    record_property("makespan", f"{took:.1f} s, predicted {said:.1f} s")
    record_property("lease", f"{lease_s(leases):.2f} s besides its steps, mean of {len(leases)}")
    assert len(leases) >= len(jobs)
    assert said == pytest.approx(took, rel=0.08)


def test_foreign_jobs_keep_their_devices_and_are_left_alone(slurm_server: SlurmServer) -> None:
    server, slurm = slurm_server, slurm_server.slurm
    foreign = slurm.run(
        "sbatch", "--parsable", "--job-name=theirs", "--nodelist=n3", "--gres=gpu:p100:1",
        "--output=/dev/null", "--wrap=sleep 300",
    ).strip()  # fmt: skip
    server.until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-j", foreign, "-o", "%T"), "it")
    server.start()
    # The whole node is theirs as long as they hold a device of it: our job waits or goes on k80.
    mine = server.submit("mine", 300, workload="small", accelerators=["p100", "k80"])
    job = server.client.wait(mine, timeout_s=90)
    assert (job["state"], job["steps_done"]) == ("finished", 300)
    assert job["accelerators_used"] == ["k80"]
    only = server.submit("only", 200, workload="small", gang=2, accelerators=["p100"])
    time.sleep(4.0)
    assert server.client.job(only)["state"] == "queued"
    assert "RUNNING" in slurm.run("squeue", "-h", "-j", foreign, "-o", "%T")
    slurm.run("scancel", foreign)
    assert server.client.wait(only, timeout_s=90)["steps_done"] == 200
