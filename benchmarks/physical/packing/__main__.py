"""Two real jobs on one GPU under Gandiva: tried together, kept if it pays, else undone.

    python -m benchmarks.physical.packing recommender-4096,policy-1024 --engine local:mps

Two endless jobs share one device under ``fairlead serve --policy gandiva``. They report neither
utilisation nor memory, which the server reads by NVML. Prints the speed of each alone and beside
the other, their gain (the sum of both speeds, relative to each alone), and whether they share the
device at the end. With ``--expect`` another end makes the exit status 1.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.physical.experiment import Settings, server
from benchmarks.physical.packing.outcome import Reading, outcome

from fairlead.client import Client
from fairlead.submitted_job import SubmittedJob

_ENDLESS = 10**9
_POLL_S = 0.5
MPS_SERVER = "nvidia-cuda-mps-server"


def watch(settings: Settings, workloads: Sequence[str], seconds: float) -> list[Reading]:
    """Run both jobs for some seconds after their first steps; return readings of them."""
    with server(settings) as (client, _):
        ids = [_submit(client, workload) for workload in workloads]
        readings: list[Reading] = []
        began = until = time.monotonic()
        while time.monotonic() < until + seconds:
            one, other = jobs = [client.job(job_id) for job_id in ids]
            ended = [job for job in jobs if job.has_ended]
            if ended:
                raise SystemExit(f"{ended[0].state}: {client.logs(ended[0].id)[-2000:]}")
            if not (one.steps_done and other.steps_done):
                until = time.monotonic()
            readings.append(
                Reading(
                    round(time.monotonic() - began, 2),
                    (_speed(one), _speed(other)),
                    one["shares_with"] == [other.id],
                    _mps_runs(),
                )
            )
            time.sleep(_POLL_S)
        print(f"devices: {client.get('/v1/nodes')[0]['health']}", flush=True)
        print(f"leases: {[job['leases'] for job in jobs]}")
    return readings


def _submit(client: Client, workload: str) -> str:
    model, _, batch_size = workload.rpartition("-")
    command = [sys.executable, "-m", "benchmarks.physical.train", model]
    command += ["--batch-size", batch_size, "--steps", str(_ENDLESS)]
    job = client.submit(
        command,
        workload=workload,
        steps=_ENDLESS,
        directory=os.getcwd(),
        environment={"OMP_NUM_THREADS": "2"},
    )
    return job.id


def _speed(job: SubmittedJob) -> float:
    """Return the speed of a job now; 0 if it does not run."""
    return float(job["steps_per_s"] or 0.0) if job.state == "running" else 0.0


def _mps_runs() -> bool:
    """Return whether a process of MPS runs on this machine."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if MPS_SERVER.encode() in status.read_bytes():
                return True
        except OSError:  # it has ended
            continue
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", help="two workloads of the bundled models")
    parser.add_argument("--engine", default="local", help="local or local:mps")
    parser.add_argument("--policy", default="gandiva")
    parser.add_argument("--speeds", default="h200", help="speed table")
    parser.add_argument("--round", type=float, default=15.0, metavar="S")
    parser.add_argument("--seconds", type=float, default=75.0, metavar="S")
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPU")
    parser.add_argument("--expect", choices=("kept", "undone"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    settings = Settings(
        policy=options.policy,
        engine=options.engine,
        speeds=options.speeds,
        round_s=options.round,
        emulate=options.emulate,
    )
    workloads = options.workloads.split(",")
    readings = watch(settings, workloads, options.seconds)
    if options.out:
        options.out.write_text(json.dumps(readings) + "\n", encoding="utf-8")
    return show(workloads, readings, options.expect)


def show(workloads: Sequence[str], readings: Sequence[Reading], expected: str | None) -> int:
    """Print the outcome; return 1 if it is another than the expected one."""
    result = outcome(readings)
    if result is None:
        print("a speed is missing: expected a longer --seconds")
        return 1
    for workload, alone, beside in zip(workloads, result.alone, result.beside, strict=True):
        print(f"{workload}: {alone:.4g} steps/s alone, {beside:.4g} beside the other")
    changes = [b.at_s for a, b in pairwise(readings) if a.together != b.together]
    ended = "kept" if result.kept else "undone"
    served = "" if any(reading.mps for reading in readings) else "out"
    print(f"gain {result.gain:.2f}, {ended}, with{served} MPS; changes at {changes} s")
    return int(expected not in {None, ended})


if __name__ == "__main__":
    sys.exit(main())
