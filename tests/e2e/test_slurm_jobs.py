"""Training jobs on a real Slurm of four nodes: gangs over nodes, moves, others' jobs there."""

import os
import time
from typing import Any

import pytest
from tests.e2e.slurm_prediction import lease_s, measured, predicted_makespan_s
from tests.e2e.slurm_server import SlurmServer, note
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
    slurm_server: SlurmServer, policy: str
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
    server.until(lambda: not list((server.data / "leases").iterdir()), "nothing left of leases")
    # The simulator knows the speeds and what a lease costs besides its steps.
    took = max(job["ended_at"] for job in jobs) - min(job["submitted_at"] for job in jobs)
    leases = measured(server)
    said = predicted_makespan_s(server, jobs, policy, ROUND_S, lease_s(leases))
    note(f"{policy}: {took:.1f} s, predicted {said:.1f} s; {lease_s(leases):.2f} s a lease")
    assert len(leases) >= len(jobs)
    if os.getloadavg()[0] > 4 * (os.cpu_count() or 1):
        pytest.skip("the machine is too busy for times that can be foretold; all else holds")
    # Seen up to 13 % apart on a quiet machine and 18 % beside other tests.
    assert said == pytest.approx(took, rel=0.25)


def test_others_keep_the_device_they_hold_and_we_use_the_rest_of_the_node(
    slurm_server: SlurmServer,
) -> None:
    server, slurm = slurm_server, slurm_server.slurm
    foreign = slurm.run(
        "sbatch", "--parsable", "--job-name=theirs", "--nodelist=n4", "--gres=gpu:k80:1",
        "--output=/dev/null", "--wrap=sleep 300",
    ).strip()  # fmt: skip

    def is_theirs() -> bool:
        return slurm.run("squeue", "-h", "-j", foreign, "-o", "%T").strip() == "RUNNING"

    server.until(is_theirs, "their job to run")
    server.start(round_s=40.0)
    (n4,) = [node for node in server.client.get("/v1/nodes") if node["id"] == "n4"]
    assert (n4["up"], n4["taken"]) == (True, 1)
    three = server.submit("three", 600, workload="small", gang=3, accelerators=["k80"])
    one = server.submit("one", 100, workload="small", accelerators=["k80"])
    server.until(lambda: server.leases() == {three: ["n4"]}, "three of its four devices in use")
    time.sleep(2.0)
    assert server.client.job(one)["state"] == "queued"
    slurm.run("scancel", foreign)
    server.until(lambda: one in server.leases(), "what they have left to be used")
    assert three in server.leases()
    for job, steps in ((three, 600), (one, 100)):
        found = server.client.wait(job, timeout_s=60)
        assert (found["state"], found["steps_done"], found["leases"]) == ("finished", steps, 1)
    ended = slurm.run("scontrol", "show", "job", "--oneliner", foreign)
    assert "JobState=CANCELLED" in ended  # by us, just now: nobody else has touched it
    assert "Restarts=0" in ended


SIZE = 18 << 20


def test_a_job_moves_to_another_accelerator_within_five_seconds(slurm_server: SlurmServer) -> None:
    server = slurm_server.start(round_s=60.0)
    job = server.submit("out", 3000, SIZE, workload="small", accelerators=["v100", "k80"])
    server.until(lambda: server.client.job(job)["steps_done"] > 50, "it to run")
    (node,) = server.leases()[job]
    assert node in ("n1", "n2")
    server.client.post(f"/v1/nodes/{'n2' if node == 'n1' else 'n1'}/cordon")
    began = time.time()
    server.client.post(f"/v1/nodes/{node}/drain")
    server.until(lambda: server.leases().get(job) == ["n4"], "it to run elsewhere")
    (saved,) = server.data.glob(f"jobs/{job}/checkpoint/*.ckpt")
    assert saved.stat().st_size > SIZE
    steps = server.client.job(job)["steps_done"]
    server.until(lambda: server.client.job(job)["steps_done"] > steps, "its next step")
    server.client.post(f"/v1/jobs/{job}/cancel")
    server.until(lambda: not server.leases(), "its end")
    first, second = server.made("out")
    left, went_on = first["ended"] - began, second["began"] - began
    note(f"it made its last step there after {left:.2f} s, its next after {went_on:.2f} s")
    assert went_on < 5.0
    assert first["lease"] != second["lease"]
