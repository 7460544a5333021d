"""Gandiva on a live cluster packs jobs by their own measurements alone."""

import json
import sys
import time
from pathlib import Path

from tests.e2e.support.live_server import LiveServer

SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
light,1,v100,,,100,
light,1,v100,,light,70,70
"""
TRAIN = """
import json, sys
from fairlead import job

run, seen = job.attach(), {"steps": []}
run.register(seen=seen)
for i in run.steps(range(int(sys.argv[1]))):
    seen["steps"].append(i)
    run.report(utilization=0.4, memory_gib=2.0)
with open(sys.argv[2], "w") as file:
    json.dump(seen, file)
"""
STEPS = 2000


def test_gandiva_packs_two_jobs_on_one_device_in_overload_and_both_finish_exactly(
    tmp_path: Path,
) -> None:
    server = LiveServer(tmp_path, devices="v100=1", round_s=4.0)
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "train.py").write_text(TRAIN)
    server.extra = ("--policy", "gandiva")
    try:
        server.start()
        ids = [
            server.client.submit(
                [sys.executable, str(tmp_path / "train.py"), str(STEPS), str(tmp_path / name)],
                workload="light",
                steps=STEPS,
            )["id"]
            for name in ("one", "two")
        ]
        together: set[float] = set()
        until = time.monotonic() + 120
        while time.monotonic() < until:
            jobs = [server.client.job(job) for job in ids]
            if all(job["state"] == "running" for job in jobs):
                together.update(job["steps_per_s"] for job in jobs)
            if all(job["state"] == "finished" for job in jobs):
                break
            time.sleep(0.2)
        assert [job["state"] for job in jobs] == ["finished", "finished"]
        assert [job["steps_done"] for job in jobs] == [STEPS, STEPS]
        for name in ("one", "two"):
            assert json.loads((tmp_path / name).read_text())["steps"] == list(range(STEPS))
        # Both shared the device long enough to measure the slowdown.
        assert any(0 < speed < 85 for speed in together), together
    finally:
        server.clean_up()
