"""CPU time, memory and decision times of simulations from 1,000 to 100,000 jobs.

    python -m benchmarks.large [--jobs N,…] [--policy SPEC] [--plot FILE.svg] [--json]

There is a device, of one of six accelerators, for every ten jobs. The jobs belong to 300
workloads, whose speeds are drawn around those of the accelerators. A fifth of the jobs waits at
the start, the others arrive about as fast as the cluster completes jobs, so that a fifth or more
of them is active at once. Each simulation is a separate process, one at a time. A decision is the
CPU time from the request for a plan to the plan: snapshot, allocation and placement. ranges.toml
(``large``) limits the figures.
"""

import argparse
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.ranges import report

from fairlead.files import read_cluster
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.events import Event, PlanDue, PlanReady
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.scenario import Scenario

SIZES = (1_000, 10_000, 100_000)
JOBS_PER_DEVICE = 10
WORKLOADS = 300
ACCELERATORS = {"h100": 4.0, "a100": 2.5, "v100": 1.0, "t4": 0.45, "p100": 0.5, "k80": 0.12}
"""accelerator → speed of a typical workload relative to v100"""
PARTS = (0.1, 0.2, 0.25, 0.2, 0.15, 0.1)
"""parts of the devices"""
SPREAD = 0.5
"""standard deviation of the logarithm of a workload's speed on one accelerator"""
WAITING = 0.2
"""part of the jobs that waits at the start"""
JOBS_PER_DEVICE_HOUR = 0.8
"""arrivals afterwards"""
DURATION_FACTOR = 0.25
"""on Gavel's durations: from 8 minutes to 42 hours on a v100, 4 hours on average"""
ROUND_S = 360.0
POLICY = "max-min"


@dataclass(frozen=True)
class Measured:
    """Figures of one simulation."""

    jobs: int
    devices: int
    cpu_s: float
    peak_mb: float
    rounds: int
    most_active: int
    """jobs that had arrived and not finished, at most"""
    longest_ms: float
    median_ms: float
    average_h: float
    """time from arrival to completion"""


@dataclass
class DecisionTimes:
    """Listens to the events of a simulation and measures its decisions."""

    ms: list[float] = field(default_factory=list)
    _asked_at: float = 0.0

    def on_event(self, event: Event) -> None:
        """Note the CPU time at which a plan is requested, and at which it is there."""
        if isinstance(event, PlanDue):
            self._asked_at = time.process_time()
        elif isinstance(event, PlanReady):
            self.ms.append((time.process_time() - self._asked_at) * 1000)


def speed_table(seed: int = 0) -> SpeedTable:
    """Return random speeds of the workloads on the accelerators."""
    rng = random.Random(seed)
    speeds: dict[SpeedKey, float] = {}
    for i in range(WORKLOADS):
        base = 10.0 ** rng.uniform(-1.0, 1.5)
        for accelerator, factor in ACCELERATORS.items():
            key = SpeedKey(f"workload-{i:03}", 1, accelerator)
            speeds[key] = round(base * factor * math.exp(rng.gauss(0.0, SPREAD)), 4)
    return SpeedTable(speeds, source="random")


def trace(jobs: int, speeds: SpeedTable, seed: int = 0) -> list[Job]:
    """Return jobs of which the first are there from the start."""
    rate = JOBS_PER_DEVICE_HOUR * jobs / JOBS_PER_DEVICE
    recipe = Recipe(jobs=jobs, rate=rate, duration_factor=DURATION_FACTOR)
    made = generate(recipe, speeds, random.Random(seed))
    there = round(WAITING * jobs)
    began_at = made[there - 1].arrival_at
    return [replace(job, arrival_at=max(job.arrival_at - began_at, 0.0)) for job in made]


def measure(jobs: int, policy: str) -> Measured:
    """Simulate this many jobs in this process; return the figures."""
    speeds, devices = speed_table(), jobs // JOBS_PER_DEVICE
    counts = {name: round(part * devices) for name, part in zip(ACCELERATORS, PARTS, strict=True)}
    times = DecisionTimes()
    scenario = Scenario(
        cluster=read_cluster(",".join(f"{name}={count}" for name, count in counts.items())),
        speeds=speeds,
        jobs=trace(jobs, speeds),
        mechanism=create_mechanism(policy, None, ROUND_S),
        on_event=times.on_event,
    )
    record, _ = simulate(scenario)
    arrived = [job.arrival_at for job in scenario.jobs]
    changes = sorted([(at, 1) for at in arrived] + [(at, -1) for at in record.finished_at])
    active = most = 0
    for _, change in changes:
        active += change
        most = max(most, active)
    use = resource.getrusage(resource.RUSAGE_SELF)
    return Measured(
        jobs=jobs,
        devices=sum(counts.values()),
        cpu_s=use.ru_utime + use.ru_stime,
        peak_mb=use.ru_maxrss / 1000,
        rounds=record.rounds,
        most_active=most,
        longest_ms=max(times.ms),
        median_ms=statistics.median(times.ms),
        average_h=float((record.finished_at - arrived).mean()) / 3600,
    )


def measure_apart(jobs: int, policy: str) -> Measured:
    """Simulate this many jobs in another process; return the figures."""
    command = (sys.executable, "-m", "benchmarks.large", "--one", str(jobs), "--policy", policy)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout))


def summary(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the figures that ranges.toml limits."""
    figures: dict[str, float] = {}
    for it in measured:
        figures[f"{it.jobs} jobs, CPU s"] = it.cpu_s
        figures[f"{it.jobs} jobs, MB"] = it.peak_mb
        figures[f"{it.jobs} jobs, longest decision ms"] = it.longest_ms
        figures[f"{it.jobs} jobs, median decision ms"] = it.median_ms
    for few, more in pairwise(measured):
        figures[f"{more.jobs} over {few.jobs} jobs, CPU ratio"] = more.cpu_s / few.cpu_s
    return figures


def plot(measured: Sequence[Measured], file: Path) -> None:
    """Draw CPU time and the longest decision over the number of jobs, both logarithmic."""
    width, height, left, top = 640, 400, 64, 24
    right, bottom = width - 24, height - 56
    low_x, high_x = 3.0, 5.0
    seconds = [value for it in measured for value in (it.cpu_s, it.longest_ms / 1000)]
    low_y, high_y = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))

    def at(jobs: float, value: float) -> str:
        x = left + (math.log10(jobs) - low_x) / (high_x - low_x) * (right - left)
        y = bottom - (math.log10(value) - low_y) / (high_y - low_y) * (bottom - top)
        return f"{x:.1f},{y:.1f}"

    def text(where: str, label: str, anchor: str, dx: int = 0, dy: int = 0) -> str:
        x, y = map(float, where.split(","))
        return f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{label}</text>'

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' font-family="sans-serif" font-size="13" fill="#444">',
        "<title>CPU seconds and longest decision over the number of jobs</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for power in range(low_y, high_y + 1):
        start, end = at(10**low_x, 10.0**power), at(10**high_x, 10.0**power)
        lines.append(f'<path d="M{start}L{end}" stroke="#ddd"/>')
        lines.append(text(start, f"{10.0**power:g} s", "end", dx=-6, dy=4))
    for power in range(int(low_x), int(high_x) + 1):
        start, end = at(10.0**power, 10.0**low_y), at(10.0**power, 10.0**high_y)
        lines.append(f'<path d="M{start}L{end}" stroke="#ddd"/>')
        lines.append(text(start, f"{10**power:,d} jobs", "middle", dy=20))
    last = measured[-1]
    linear = [(it.jobs, last.cpu_s * it.jobs / last.jobs) for it in measured]
    curves = (
        ("CPU time", "#1f77b4", "", [(it.jobs, it.cpu_s) for it in measured]),
        ("in proportion to the jobs", "#999", ' stroke-dasharray="5 4"', linear),
        ("longest decision", "#d62728", "", [(it.jobs, it.longest_ms / 1000) for it in measured]),
    )
    for number, (label, colour, dash, points) in enumerate(curves):
        inside = [point for point in points if point[1] >= 10.0**low_y]
        path = "L".join(at(*point) for point in inside)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        x = left + 190 * number
        lines.append(f'<path d="M{x},{height - 12}h24" stroke="{colour}" stroke-width="2"{dash}/>')
        lines.append(text(f"{x + 30},{height - 8}", label, "start"))
    file.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", help="sizes, separated by commas")
    parser.add_argument("--one", type=int, metavar="N", help="one size in this process, as JSON")
    parser.add_argument("--policy", default=POLICY, help="ranges apply to max-min only")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the growth")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.one, options.policy))))
        return 0
    sizes = [int(size) for size in options.jobs.split(",")] if options.jobs else SIZES
    measured = []
    for jobs in sorted(sizes):
        it = measure_apart(jobs, options.policy)
        measured.append(it)
        print(
            f"{it.jobs:7,d} jobs, {it.devices:6,d} devices: {it.cpu_s:6.1f} CPU s,"
            f" {it.peak_mb:4.0f} MB, {it.rounds:5,d} rounds, at most {it.most_active:6,d} active,"
            f" decisions {it.median_ms:5.1f} ms, at most {it.longest_ms:5.1f} ms",
            file=sys.stderr,
            flush=True,
        )
    if options.plot:
        plot(measured, options.plot)
    applies = options.policy == POLICY
    return report("large", summary(measured), as_json=options.json, applies=applies)


if __name__ == "__main__":
    sys.exit(main())
