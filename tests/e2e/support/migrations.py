"""Jobs that an operator moves to other nodes, on any engine."""

import time
from collections.abc import Sequence

from tests.e2e.support.cluster_server import ClusterServer, note
from tests.e2e.support.trained_line import check_result

SIZE = 18 << 20


def check_a_move_to_another_accelerator(
    server: ClusterServer, first: tuple[str, str], then: str
) -> None:
    """Check that a job with a checkpoint of 18 MiB migrates to another node in five seconds."""
    server.start(round_s=20.0)
    job = server.submit("out", 3000, SIZE, workload="small", accelerators=["v100", "k80"])
    server.until(lambda: server.client.job(job)["steps_done"] > 50, "it to run")
    (node,) = server.leases()[job]
    (other,) = set(first) - {node}
    server.client.post(f"/v1/nodes/{other}/cordon")
    began = time.time()
    server.client.post(f"/v1/nodes/{node}/drain")
    server.until(lambda: server.leases().get(job) == [then], "it to run elsewhere")
    (saved,) = server.data.glob(f"jobs/{job}/checkpoint/*.ckpt")
    assert saved.stat().st_size > SIZE
    steps = server.client.job(job)["steps_done"]
    server.until(lambda: server.client.job(job)["steps_done"] > steps, "its next step")
    server.client.post(f"/v1/jobs/{job}/cancel")
    server.until(lambda: not server.leases(), "its end")
    there, here = server.made("out")
    left, resumed = there["ended"] - began, here["began"] - began
    note(f"it made its last step there after {left:.2f} s, its next after {resumed:.2f} s")
    assert resumed < 5.0
    assert there["lease"] != here["lease"]


def check_checkpoints_are_carried(
    server: ClusterServer, gang_on: Sequence[str], single_on: str, then: str
) -> tuple[str, str]:
    """Check that a gang and a job migrate between nodes with local disks; return both."""
    server.start(round_s=20.0)
    gang = server.submit("gang", 1200, workload="small", gang=3, accelerators=["v100", "k80"])
    single = server.submit("one", 900, SIZE, workload="small", accelerators=["p100", "k80"])
    server.until(lambda: server.client.job(single)["steps_done"] > 50, "it to run")
    server.until(lambda: server.leases() == {gang: [*gang_on], single: [single_on]}, "both to run")
    began = time.time()
    for node in (single_on, *gang_on):
        server.client.post(f"/v1/nodes/{node}/drain")
    server.until(lambda: server.leases() == {gang: [then], single: [then]}, "both to move")
    for job_id, name, steps, ranks in ((gang, "gang", 1200, 3), (single, "one", 900, 1)):
        job = server.client.wait(job_id, timeout_s=60)
        assert (job["state"], job["steps_done"], job["leases"]) == ("finished", steps, 2)
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", steps)
        first, last = [
            end["steps"] for end in server.log_events("lease.ended") if end["job"] == job_id
        ]
        assert 0 < first < last == steps, "it resumed from the checkpoint of the other node"
        assert "left after step" in server.client.raw("GET", f"/v1/jobs/{job_id}/logs")[2].decode()
    resumed = server.made("one")[1]["began"] - began
    note(f"with a transferred checkpoint it made its next step after {resumed:.2f} s")
    assert resumed < 10.0
    return gang, single


def check_a_fork(server: ClusterServer, source: str) -> None:
    """Check that a job continues from the carried checkpoint of one that has made 900 steps."""
    fork = server.submit(
        "fork", 930, SIZE, workload="small", accelerators=["p100", "k80"], start_from=source
    )
    job = server.client.wait(fork, timeout_s=60)
    assert (job["state"], job["steps_done"]) == ("finished", 930), server.log()
    check_result(server.root / "fork.0", 930)
    assert sum(lease["steps"] for lease in server.made("fork")) == 30
