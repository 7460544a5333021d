"""Cost of the job library in a training loop."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.support.lease_server import LeaseServer
from tests.e2e.support.live_server import LiveServer

from fairlead.testing.cpu_time import machine_slowness

STEPS, STEP_S = 300, 0.01
LOOP = f"""
import time
from fairlead import job

run = job.attach()
for i in run.steps(range({STEPS} + 20)):
    if i == 20:  # the first renewals, with their imports, are part of the start
        began = time.process_time()
    time.sleep({STEP_S})
    took = time.process_time() - began if i >= 20 else 0.0
print(took)
"""


def cpu_s(**environment: str) -> float:
    """Return the CPU seconds of the loop's process, all threads together, after its start."""
    done = subprocess.run(
        [sys.executable, "-c", LOOP],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def test_steps_of_10_ms_cost_at_most_half_a_percent_more_under_a_lease(tmp_path: Path) -> None:
    server = LeaseServer()
    server.valid_s = 8.0  # renewed every second: five times as often as under the default round
    limit_s = 0.005 * STEPS * STEP_S
    lease = {"FAIRLEAD_LEASE": "7", "FAIRLEAD_URL": server.url, "FAIRLEAD_JOB_TOKEN": "secret"}
    overheads_s: list[float] = []
    try:
        # Beside other processes the same loop needs more time in some runs than in others.
        while len(overheads_s) < 2 or (min(overheads_s) > limit_s and len(overheads_s) < 5):
            directory = tmp_path / f"{len(overheads_s)}"
            directory.mkdir()
            under = cpu_s(**lease, FAIRLEAD_CHECKPOINT_DIR=str(directory))
            overheads_s.append((under - cpu_s()) / machine_slowness())
    finally:
        server.close()
    assert sum(renewal["steps"] > 0 for renewal in server.renewals) >= 4
    assert min(overheads_s) <= limit_s, overheads_s


def test_a_lone_job_keeps_one_lease_over_many_rounds(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, devices="v100=1", round_s=0.8)
    try:
        server.start()
        command = [sys.executable, str(tmp_path / "train.py"), "600", str(tmp_path / "out")]
        job = server.client.submit(command, workload="big", steps=600)["id"]
        ended = server.client.wait(job, timeout_s=120)
        assert (ended["state"], ended["steps_done"]) == ("finished", 600)
        assert ended["ended_at"] - ended["started_at"] > 5 * server.round_s
        assert (ended["leases"], ended["preemptions"]) == (1, 0)
    finally:
        server.clean_up()
