"""Training jobs on a real Ray of four nodes: multi-node gangs, migration, foreign tasks."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.support.migrations import (
    check_a_fork,
    check_a_move_to_another_accelerator,
    check_checkpoints_are_carried,
)
from tests.e2e.support.trained_line import check_result

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("policy", ["max-min", "gandiva-fair", "hadar"])
def test_jobs_of_two_tenants_make_exactly_their_steps_in_multi_node_gangs_too(
    ray_server: RayServer, policy: str
) -> None:
    server = ray_server.start(policy=policy, round_s=4.0)
    submitted = {}
    for number in range(10):
        steps, gang = 150 + 15 * number, 3 if number % 4 == 0 else 1 + number % 2
        settings: dict[str, Any] = {"workload": ("big", "small")[number % 2], "gang": gang}
        settings["tenant"] = ("red", "blue")[number % 2]
        if number == 4:  # three devices, two per node: needs several nodes
            settings["accelerators"] = ["v100"]
        submitted[server.submit(f"out{number}", steps, **settings)] = (number, steps, gang)
    for job_id, (number, steps, gang) in submitted.items():
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(gang):
            check_result(server.root / f"out{number}.{rank}", steps)
    nodes = [entry["nodes"] for entry in server.log_events("ray.started")]
    assert any(len(names) > 1 for names in nodes), "no gang ran on several nodes"
    assert {node for names in nodes for node in names} == {"n1", "n2", "n3", "n4"}
    left = [*(server.data / "leases").iterdir(), *server.nodes.glob("*/leases/*")]
    server.until(
        lambda: not any(path.exists() for path in left), "all lease directories to be removed"
    )
    server.until(lambda: not server.ray.groups(), "all placement groups to be removed")


def test_a_job_migrates_to_another_accelerator_within_five_seconds(ray_server: RayServer) -> None:
    check_a_move_to_another_accelerator(ray_server, ("n1", "n4"), "n3")


def test_checkpoints_and_logs_are_transferred_without_a_shared_directory(
    ray_server: RayServer,
) -> None:
    server = ray_server.without_shared_directory()
    gang, single = check_checkpoints_are_carried(server, ["n1", "n4"], "n2", "n3")
    for node, jobs in {"n1": {gang}, "n2": {single}, "n3": {gang, single}, "n4": {gang}}.items():
        assert {path.name for path in server.nodes.glob(f"{node}/*/jobs/*")} == jobs
    server.until(
        lambda: not list(server.nodes.glob("**/*.ckpt")), "checkpoints to be removed from nodes"
    )
    _check_code_is_carried(server)
    check_a_fork(server, single)


def _check_code_is_carried(server: RayServer) -> None:
    """Check that a job runs the code of its submission on a node, which keeps none of it."""
    home = server.root / "project"
    home.mkdir()
    (home / "say.py").write_text("import os; print('in', os.getcwd())")
    settings = {"workload": "big", "directory": str(home)}
    job = server.client.submit([sys.executable, "say.py"], snapshot=True, **settings)
    assert server.client.wait(job.id, timeout_s=120)["state"] == "finished", server.log()
    place = server.client.logs(job.id).removeprefix("in ").strip()
    assert Path(place).match(f"*/jobs/{job.id}/code")
    assert Path(place).is_relative_to(server.nodes.resolve())
    server.until(lambda: not list(server.nodes.glob(f"*/*/jobs/{job.id}/*code")), "its removal")


def test_other_users_keep_their_device_and_leases_use_the_rest_of_the_node(
    ray_server: RayServer,
) -> None:
    server, ray = ray_server, ray_server.ray
    assert ray.ask("reserve", "theirs", [{"K80": 1}], 10.0)
    try:
        server.start(round_s=180.0)

        def n3() -> tuple[bool, int]:
            (node,) = [node for node in server.client.get("/v1/nodes") if node["id"] == "n3"]
            return node["up"], node["taken"]

        server.until(lambda: n3() == (True, 1), "the taken device to be reported")
        three = server.submit("three", 100_000, workload="small", gang=3, accelerators=["k80"])
        server.until(lambda: server.leases() == {three: ["n3"]}, "three of its four to be used")
        single = server.submit("single", 100, workload="small", accelerators=["k80"])
        time.sleep(2.0)
        assert server.client.job(single)["state"] == "queued"
    finally:
        ray.ask("release", "theirs")
    server.until(lambda: single in server.leases(), "the released device to be used")
    done = server.client.wait(single, timeout_s=120)
    assert (done["state"], done["steps_done"], done["leases"]) == ("finished", 100, 1)
    unharmed = server.client.job(three)
    assert (unharmed["state"], unharmed["leases"], unharmed["failures"]) == ("running", 1, 0)
    assert unharmed["steps_done"] > 0
