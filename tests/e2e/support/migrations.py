"""Jobs that an operator moves to other nodes, on any engine."""

import time
from collections.abc import Sequence

from tests.e2e.support.cluster_server import ClusterServer, note
from tests.e2e.support.trained_line import check_result

SIZE = 18 << 20
GANG_STEPS, STEPS = 2400, 1500
"""of jobs that must run long enough to be moved, on a busy machine, too"""


def check_a_move_to_another_accelerator(
    server: ClusterServer, first: tuple[str, str], then: str
) -> None:
    """Check that a job with a checkpoint of 18 MiB migrates to another node in five seconds."""
    server.start(round_s=90.0)
    submitted = time.time()
    job = server.submit("out", 100_000, SIZE, workload="small", accelerators=["v100", "k80"])
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
    _check_is_soon(resumed, 5.0, there["began"] - submitted)
    assert there["lease"] != here["lease"]


def _check_is_soon(taken_s: float, limit_s: float, started_s: float) -> None:
    """Check a limit of a quiet machine, where a job starts in at most a second and a half."""
    assert taken_s < limit_s * max(started_s / 1.5, 1.0), f"a job started in {started_s:.2f} s"


def check_checkpoints_are_carried(
    server: ClusterServer, gang_on: Sequence[str], single_on: str, then: str
) -> tuple[str, str]:
    """Check that a gang and a job migrate between nodes with local disks; return both."""
    server.start(round_s=90.0)
    submitted = time.time()
    single = server.submit("one", STEPS, SIZE, workload="small", accelerators=["p100", "k80"])
    gang = server.submit(
        "gang", GANG_STEPS, workload="small", gang=3, accelerators=["v100", "k80"]
    )
    server.until(lambda: server.client.job(single)["steps_done"] > 50, "it to run")
    server.until(lambda: server.leases() == {gang: [*gang_on], single: [single_on]}, "both to run")
    began = time.time()
    for node in (single_on, *gang_on):
        server.client.post(f"/v1/nodes/{node}/drain")
    server.until(lambda: server.leases() == {gang: [then], single: [then]}, "both to move")
    for job_id, name, steps, ranks in ((gang, "gang", GANG_STEPS, 3), (single, "one", STEPS, 1)):
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["steps_done"], job["leases"]) == ("finished", steps, 2)
        for rank in range(ranks):
            check_result(server.root / f"{name}.{rank}", steps)
        first, last = [
            end["steps"] for end in server.log_events("lease.ended") if end["job"] == job_id
        ]
        assert 0 < first < last == steps, "it resumed from the checkpoint of the other node"
        assert "left after step" in server.client.raw("GET", f"/v1/jobs/{job_id}/logs")[2].decode()
    first, second = server.made("one")
    resumed = second["began"] - began
    note(f"with a transferred checkpoint it made its next step after {resumed:.2f} s")
    _check_is_soon(resumed, 10.0, first["began"] - submitted)
    return gang, single


def check_a_fork(server: ClusterServer, source: str) -> None:
    """Check that a job continues from the carried checkpoint of one that has finished."""
    fork = server.submit(
        "fork", STEPS + 30, SIZE, workload="small", accelerators=["p100", "k80"], start_from=source
    )
    job = server.client.wait(fork, timeout_s=120)
    assert (job["state"], job["steps_done"]) == ("finished", STEPS + 30), server.log()
    check_result(server.root / "fork.0", STEPS + 30)
    assert sum(lease["steps"] for lease in server.made("fork")) == 30
