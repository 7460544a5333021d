"""Measure switches of a device from one job to another: by offload and by exit.

``python -m benchmarks.live.switches``: two jobs take turns on one emulated device. Prints the
seconds from the last step of one to the first step of the other. With ``--width 4096`` they train
eight layers of this width with PyTorch on the machine's first device: with Adam a state of 1.6 GB.
A round must be longer than the write of a checkpoint.
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
_TORCH = """import os, sys, time
import torch
from fairlead import job

device, width = "cuda" if torch.cuda.is_available() else "cpu", {width}
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).to(device)
optimizer, batch = torch.optim.Adam(model.parameters()), torch.randn(64, width, device=device)
run = job.attach()
run.register(model=model, optimizer=optimizer)
with open(sys.argv[1], "a", buffering=1) as trace:
    for _ in run.steps(range(10**9)):
        began = time.monotonic()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        trace.write(f"{{os.environ['FAIRLEAD_JOB']}} {{began}} {{time.monotonic()}}\\n")
"""
_OFFLOAD_GIB = {"offload": "64", "exit": "0"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=20)
    parser.add_argument("--round", type=float, default=2.0)
    parser.add_argument("--imports", default="", help="a line that the job's program begins with")
    parser.add_argument("--width", type=int, help="train layers of this width with PyTorch")
    parser.add_argument("--ways", nargs="+", default=[*_OFFLOAD_GIB], choices=[*_OFFLOAD_GIB])
    options = parser.parse_args()
    for way in options.ways:
        with tempfile.TemporaryDirectory(prefix="fairlead-switches-") as root:
            seconds = _measure(Path(root), _OFFLOAD_GIB[way], options)
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
    text = _TRAIN.format(imports=options.imports)
    if options.width is not None:
        text = _TORCH.format(width=options.width)
    program.write_text(text, encoding="utf-8")
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
