"""Measure switches of a device from one job to another: by offload and by exit.

``python -m benchmarks.live.switches``: two jobs take turns on one emulated device. Prints the
seconds from the last step of one to the first step of the other.
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.e2e.support.live_server import LiveServer

_SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
line,1,v100,,,100,
"""
_TRAIN = """import os, sys, time
{imports}
from fairlead import job

run, steps = job.attach(), {{"made": 0}}
run.register(steps=steps)
with open(sys.argv[1], "a", buffering=1) as trace:
    for _ in run.steps(range(10**9)):
        began = time.monotonic()
        steps["made"] += 1
        trace.write(f"{{os.environ['FAIRLEAD_JOB']}} {{began}} {{time.monotonic()}}\\n")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=20)
    parser.add_argument("--round", type=float, default=2.0)
    parser.add_argument("--imports", default="", help="a line that the job's program begins with")
    options = parser.parse_args()
    for way, offload in (("offload", "16"), ("exit", "0")):
        with tempfile.TemporaryDirectory(prefix="fairlead-switches-") as root:
            seconds = _measure(Path(root), offload, options)
        print(
            f"{way:8} median {median(seconds):.3f} s, least {min(seconds):.3f} s,"
            f" most {max(seconds):.3f} s, {len(seconds)} switches"
        )
    return 0


def _measure(root: Path, offload: str, options: argparse.Namespace) -> list[float]:
    """Return the seconds of each switch after the first start of both jobs."""
    server = LiveServer(root, devices="v100=1", round_s=options.round)
    (root / "speeds.csv").write_text(_SPEEDS, encoding="ascii")
    program, trace = root / "job.py", root / "trace"
    program.write_text(_TRAIN.format(imports=options.imports), encoding="utf-8")
    server.extra = ("--offload-memory", offload)
    try:
        client = server.start().client
        for _ in range(2):
            client.submit([sys.executable, str(program), str(trace)], workload="line")
        while len(_switches(trace)) < options.switches + 2:
            time.sleep(0.2)
    finally:
        server.clean_up()
    return _switches(trace)[2:]


def _switches(trace: Path) -> list[float]:
    """Return the seconds between two steps of different jobs, in the order of steps."""
    if not trace.exists():
        return []
    lines = [line.split() for line in trace.read_text(encoding="ascii").splitlines()]
    steps = [(job, float(began), float(ended)) for job, began, ended in lines]
    return [
        began - ended
        for (job, _, ended), (other, began, _) in itertools.pairwise(steps)
        if job != other
    ]


if __name__ == "__main__":
    sys.exit(main())
