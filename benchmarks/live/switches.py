"""Measure switches of a device from one job to another, and moves of jobs to other devices.

``python -m benchmarks.live.switches``: two jobs take turns on one emulated device, by offload and
by exit. Prints the seconds from the last step of one to the first step of the other. ``--ways
hand-over restart``: two jobs exchange two emulated devices, by hand-over and by new processes.
Prints the seconds from the last step of a job on one device to its first step on the other. With
``--width 4096`` they train eight layers of this width with PyTorch on the machine's first device:
with Adam a state of 1.6 GB. A round must be longer than the write of a checkpoint, and for moves
longer than twice the start of a process.
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
line,1,k80,,,50,
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
        where = os.environ["FAIRLEAD_JOB"] + " " + os.environ["FAIRLEAD_ACCELERATOR"]
        trace.write(f"{{where}} {{began}} {{time.monotonic()}}\\n")
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
        where = os.environ["FAIRLEAD_JOB"] + " " + os.environ["FAIRLEAD_ACCELERATOR"]
        trace.write(f"{{where}} {{began}} {{time.monotonic()}}\\n")
"""
_TURNS, _MOVES = "v100=1", "v100=1,k80=1"
_WAYS = {
    "offload": (_TURNS, "64"),
    "exit": (_TURNS, "0"),
    "hand-over": (_MOVES, "64"),
    "restart": (_MOVES, "0"),
}
"""way → devices, and GiB of host memory for processes that wait"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=20)
    parser.add_argument("--round", type=float, default=2.0)
    parser.add_argument("--imports", default="", help="a line that the job's program begins with")
    parser.add_argument("--width", type=int, help="train layers of this width with PyTorch")
    parser.add_argument("--ways", nargs="+", default=["offload", "exit"], choices=[*_WAYS])
    options = parser.parse_args()
    for way in options.ways:
        with tempfile.TemporaryDirectory(prefix="fairlead-switches-") as root:
            seconds = _measure(Path(root), *_WAYS[way], options)
        print(
            f"{way:9} median {median(seconds):.3f} s, least {min(seconds):.3f} s,"
            f" most {max(seconds):.3f} s, {len(seconds)} switches"
        )
    return 0


def _measure(root: Path, devices: str, offload: str, options: argparse.Namespace) -> list[float]:
    """Return the seconds of each switch after the first start of both jobs."""
    server = LiveServer(root, devices=devices, round_s=options.round)
    switches = _moves if devices == _MOVES else _turns
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
        while len(switches(trace)) < options.switches + 2:
            time.sleep(0.2)
    finally:
        server.clean_up()
    return switches(trace)[2:]


def _turns(trace: Path) -> list[float]:
    """Return the seconds between two steps of different jobs, in the order of steps."""
    return [
        began - ended
        for (job, _, _, ended), (other, _, began, _) in itertools.pairwise(_steps(trace))
        if job != other
    ]


def _moves(trace: Path) -> list[float]:
    """Return the seconds between two steps of one job on different devices."""
    seconds, last = [], dict[str, tuple[str, float]]()
    for job, device, began, ended in _steps(trace):
        before, left_at = last.get(job, (device, began))
        if before != device:
            seconds.append(began - left_at)
        last[job] = device, ended
    return seconds


def _steps(trace: Path) -> list[tuple[str, str, float, float]]:
    """Return job, device, begin and end of each step."""
    if not trace.exists():
        return []
    lines = [line.split() for line in trace.read_text(encoding="ascii").splitlines()]
    return [
        (job, device, float(began), float(ended))
        for job, device, began, ended in (line for line in lines if len(line) == 4)
    ]


if __name__ == "__main__":
    sys.exit(main())
