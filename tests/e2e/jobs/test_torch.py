"""PyTorch gangs on a real server: moved, suspended and killed, they end with the same bits."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.engines.keeper import lease_dir

pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
net,2,v100,,,6,
net,2,k80,,,5,
"""
TRAIN = """import sys
sys.path.insert(0, sys.argv[1])
from tests.unit.job.torch.training import train
train(sys.argv[2], sys.argv[3], {})
"""
PLAIN = """import torch
from torch import distributed
from fairlead import job

distributed.init_process_group("gloo")  # as accelerate and the Trainer call it
run = job.attach()
total = torch.zeros(1)
for step in run.steps(range(3)):
    total += 1
    distributed.all_reduce(total)
print("total", total.item())
"""


def test_a_job_on_one_device_may_join_a_process_group_of_its_own(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, devices="k80=1", round_s=2.0)
    (tmp_path / "plain.py").write_text(PLAIN)
    try:
        client = server.start().client
        job = str(client.submit([sys.executable, str(tmp_path / "plain.py")], steps=3)["id"])
        assert client.wait(job, timeout_s=240)["state"] == "finished"
    finally:
        server.clean_up()


def test_a_sharded_gang_that_is_moved_and_loses_a_rank_ends_with_the_same_bits(
    tmp_path: Path,
) -> None:
    server = LiveServer(tmp_path, devices="v100=2,k80=2", round_s=2.0)
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "train.py").write_text(TRAIN)

    def submit(name: str, **settings: object) -> str:
        command = [sys.executable, str(tmp_path / "train.py"), str(ROOT), "flat"]
        command.append(str(tmp_path / name))
        job = server.client.submit(
            command, workload="net", gang=2, steps=48, retries=3, **settings
        )
        return str(job["id"])

    try:
        client = server.start().client
        moved = submit("moved")
        until(lambda: client.job(moved)["steps_done"] >= 9)
        client.suspend(moved)
        until(lambda: client.job(moved)["state"] == "suspended")
        whole = submit("whole", preempt="no")  # takes the devices that the other one had
        until(lambda: client.job(whole)["state"] == "running")
        client.resume(moved)
        until(lambda: client.job(moved)["steps_done"] >= 20)
        until(lambda: _kill_a_rank(server, moved))
        ended = [client.wait(job, timeout_s=240) for job in (moved, whole)]
        assert [(job["state"], job["steps_done"]) for job in ended] == [("finished", 48)] * 2
        assert ended[0]["leases"] >= 3
        assert set(ended[0]["accelerators_used"]) == {"v100", "k80"}
        for rank in range(2):
            results = [(tmp_path / f"{name}.{rank}").read_text() for name in ("moved", "whole")]
            assert json.loads(results[0]) == json.loads(results[1])
    finally:
        server.clean_up()


def _kill_a_rank(server: LiveServer, job: str) -> bool:
    """Kill the last member of a job's present lease; return whether there is one."""
    for directory in (server.data / "leases").iterdir():
        order, known = directory / "order.json", directory / "members.json"
        is_running = lease_dir.is_alive(directory) and known.exists()
        if is_running and json.loads(order.read_text())["job"] == job:
            os.kill(json.loads(known.read_text())["members"][-1], signal.SIGKILL)
            return True
    return False
