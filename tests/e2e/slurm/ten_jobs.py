"""Ten training jobs of two tenants on a real Slurm: gangs of one to three, some over nodes."""

from typing import Any

from tests.e2e.server.test_live import check_result
from tests.e2e.slurm.prediction import nodes_away
from tests.e2e.slurm.server import SlurmServer


def run_ten(server: SlurmServer, longer: float = 1.0) -> list[dict[str, Any]]:
    """Run the jobs, so many times as long as the shortest we use; return them as they ended.

    All have come when the first plan is made. Each has made exactly its steps, on all ranks.
    """
    made = []
    with nodes_away(server):
        for number in range(10):
            steps = int((500 + 40 * number) * longer)
            settings: dict[str, Any] = {
                "workload": ("big", "small")[number % 2],
                "gang": 3 if number % 4 == 0 else 1 + number % 2,
                "tenant": ("red", "blue")[number % 2],
            }
            if number == 4:  # three devices, two on a node: over nodes or not at all
                settings["accelerators"] = ["v100"]
            job_id = server.submit(f"out{number}", steps, **settings)
            made.append((job_id, f"out{number}", steps, settings["gang"]))
    jobs = []
    for job_id, name, steps, gang in made:
        job = server.client.wait(job_id, timeout_s=120 * longer)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(gang):
            check_result(server.root / f"{name}.{rank}", steps)
        jobs.append(job)
    nodes = [one["nodes"] for one in server.said("slurm.submitted")]
    assert any(len(some) > 1 for some in nodes), "no gang ran over nodes"
    return jobs
