"""The demo's jobs on the emulated cluster against the simulator: errors of predicted finish times.

    python -m benchmarks.fidelity [--jobs 21] [--json]

Real training processes run under a real server; the simulator gets only the arrival times and the
overhead of a lease, both as measured by this server. Limits are those of ranges.toml
(``fidelity``); a broken one makes the exit status 1. They do not apply if leases cost more than
half a round: on such a busy machine an average is not meaningful.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.live.__main__ import free_port
from benchmarks.ranges import report

from fairlead.cli.demo import demo
from fairlead.demo.scenario import (
    ROUND_S,
    DemoJob,
    demo_jobs,
    predicted,
)
from fairlead.server.config.scheduling import plan_lead_s


def run(jobs: list[DemoJob]) -> tuple[list[dict[str, Any]], float, float]:
    """Run the jobs; return their final states and the cost of a start and an end."""
    with tempfile.TemporaryDirectory(prefix="fairlead-fidelity-") as name:
        data, port = Path(name), free_port()
        server = demo.start(data, port)
        try:
            client = demo.connect(data, port, server)
            ids = demo.submit(client, jobs)
            for job_id in ids:
                client.wait(job_id, timeout_s=1200)
            about = client.get("/v1/about")
            return [client.job(i) for i in ids], about["start_s"], about["end_s"]
        finally:
            server.terminate()
            server.wait(30)
            time.sleep(1.0)


def compared(count: int) -> dict[str, float]:
    """Return the differences of the live run relative to the simulated one."""
    jobs = demo_jobs(count)
    finished, start_s, end_s = run(jobs)
    first = min(job["submitted_at"] for job in finished)
    arrivals = np.array([job["submitted_at"] - first for job in finished])
    live = np.array([job["ended_at"] - first for job in finished])
    simulated = predicted(
        jobs,
        arrivals.tolist(),
        "max-min",
        start_s=start_s,
        end_s=end_s,
        plan_lead_s=plan_lead_s(ROUND_S),
    )
    means = float((live - arrivals).mean()), float((simulated - arrivals).mean())
    return {
        "start, s": start_s,
        "end, s": end_s,
        "average JCT live, s": means[0],
        "average JCT simulated, s": means[1],
        "makespan live, s": float(live.max()),
        "makespan simulated, s": float(simulated.max()),
        "average JCT, error": abs(means[0] / means[1] - 1),
        "makespan, error": abs(float(live.max() / simulated.max()) - 1),
        "finish of a job, median error": float(np.median(np.abs(live / simulated - 1))),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=21)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = compared(options.jobs)
    busy = figures["start, s"] + figures["end, s"] > ROUND_S / 2
    if busy:
        warning = "machine too busy: leases cost more than half a round; limits not applied"
        print(warning, file=sys.stderr)
    return report("fidelity", figures, as_json=options.json, applies=not busy)


if __name__ == "__main__":
    sys.exit(main())
