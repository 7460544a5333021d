"""Ten training jobs of two tenants on a real Slurm: gangs of one to three, some multi-node."""

from typing import Any

from tests.e2e.slurm.prediction import nodes_drained
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.trained_line import check_result

from fairlead.submitted_job import SubmittedJob


def run_ten(server: SlurmServer, longer: float = 1.0) -> list[SubmittedJob]:
    """Run the jobs, ``longer`` times as long as usual; return the finished jobs.

    All are submitted before the first plan. Check that all ranks made exactly their steps.
    """
    submitted = []
    with nodes_drained(server):
        for number in range(10):
            steps = int((500 + 40 * number) * longer)
            settings: dict[str, Any] = {
                "workload": ("big", "small")[number % 2],
                "gang": 3 if number % 4 == 0 else 1 + number % 2,
                "tenant": ("red", "blue")[number % 2],
            }
            if number == 4:  # three devices, two per node: needs several nodes
                settings["accelerators"] = ["v100"]
            job_id = server.submit(f"out{number}", steps, **settings)
            submitted.append((job_id, f"out{number}", steps, settings["gang"]))
    jobs = []
    for job_id, name, steps, gang in submitted:
        job = server.client.wait(job_id, timeout_s=120 * longer)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(gang):
            check_result(server.root / f"{name}.{rank}", steps)
        jobs.append(job)
    nodes = [entry["nodes"] for entry in server.log_events("slurm.submitted")]
    assert any(len(names) > 1 for names in nodes), "no gang ran on several nodes"
    return jobs
