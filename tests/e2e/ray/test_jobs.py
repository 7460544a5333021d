"""Training jobs on a real Ray of four nodes: gangs over nodes, moves, others' work there."""

import time
from typing import Any

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.server.test_live import check_result
from tests.e2e.support.migrations import (
    check_a_move_to_another_accelerator,
    check_checkpoints_are_carried,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("policy", ["max-min", "gandiva-fair", "hadar"])
def test_jobs_of_two_tenants_finish_exactly_gangs_over_nodes_too(
    ray_server: RayServer, policy: str
) -> None:
    server = ray_server.start(policy=policy, round_s=4.0)
    made = {}
    for number in range(10):
        steps, gang = 250 + 20 * number, 3 if number % 4 == 0 else 1 + number % 2
        settings: dict[str, Any] = {"workload": ("big", "small")[number % 2], "gang": gang}
        settings["tenant"] = ("red", "blue")[number % 2]
        if number == 4:  # three devices, two on a node: over nodes or not at all
            settings["accelerators"] = ["v100"]
        made[server.submit(f"out{number}", steps, **settings)] = (number, steps, gang)
    for job_id, (number, steps, gang) in made.items():
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(gang):
            check_result(server.root / f"out{number}.{rank}", steps)
    nodes = [one["nodes"] for one in server.said("ray.started")]
    assert any(len(some) > 1 for some in nodes), "no gang ran over nodes"
    assert {node for some in nodes for node in some} == {"n1", "n2", "n3", "n4"}
    left = [*(server.data / "leases").iterdir(), *server.nodes.glob("*/leases/*")]
    server.until(lambda: not any(path.exists() for path in left), "nothing left of leases")
    server.until(lambda: not server.ray.groups(), "Ray to have its devices back")


def test_a_job_moves_to_another_accelerator_within_five_seconds(ray_server: RayServer) -> None:
    check_a_move_to_another_accelerator(ray_server, ("n1", "n4"), "n3")


def test_checkpoints_and_logs_reach_nodes_that_share_nothing(ray_server: RayServer) -> None:
    server = ray_server.without_shared_directory()
    gang, one = check_checkpoints_are_carried(server, ["n1", "n4"], "n2", "n3")
    for node, jobs in {"n1": {gang}, "n2": {one}, "n3": {gang, one}, "n4": {gang}}.items():
        assert {path.name for path in server.nodes.glob(f"{node}/*/jobs/*")} == jobs
    server.until(lambda: not list(server.nodes.glob("**/*.ckpt")), "nothing to stay on nodes")


def test_others_keep_the_device_they_hold_and_we_use_the_rest_of_the_node(
    ray_server: RayServer,
) -> None:
    server, ray = ray_server, ray_server.ray
    assert ray.ask("reserve", "theirs", [{"K80": 1}], 10.0)
    try:
        server.start(round_s=10.0)

        def n3() -> tuple[bool, int]:
            (found,) = [node for node in server.client.get("/v1/nodes") if node["id"] == "n3"]
            return found["up"], found["taken"]

        server.until(lambda: n3() == (True, 1), "their device to be known")
        three = server.submit("three", 600, workload="small", gang=3, accelerators=["k80"])
        server.until(lambda: server.leases() == {three: ["n3"]}, "three of its four to be used")
        one = server.submit("one", 100, workload="small", accelerators=["k80"])
        time.sleep(2.0)
        assert server.client.job(one)["state"] == "queued"
    finally:
        ray.ask("release", "theirs")
    server.until(lambda: one in server.leases(), "what they have left to be used")
    for job, steps in ((three, 600), (one, 100)):
        found = server.client.wait(job, timeout_s=60)
        assert (found["state"], found["steps_done"], found["leases"]) == ("finished", steps, 1)
