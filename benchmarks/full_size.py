"""CPU time, memory and average completion of every policy and mechanism over 5,000 jobs.

    python -m benchmarks.full_size [--only NAME;…] [--jobs N] [--limit-s S] [--json]

Jobs of one device arrive at 5.6 an hour on 36 devices of each of three accelerators; larger
traces scale both. Each simulation is a separate process, one at a time, so that CPU time and
memory include the start-up. The speed of a shared machine varies, so `max-min` runs before and
after each, whose CPU time is compared with the mean of both; ranges.toml (``full-size``) limits
the ratios. Some policies leave devices idle or decide every minute and so take several times
the rounds of `max-min`: the CPU time per round is printed as well. Needs Gavel's speeds as
`benchmarks.simulation` does.
"""

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.simulation import GAVEL, HERE, simulate, trace

from fairlead.mechanisms.factory import mechanisms_without_policy
from fairlead.registry import available

BASELINE = "max-min"
JOBS, RATE, DEVICES = 5000, 5.6, 36
VARIANTS = (
    *("max-min:agnostic", "max-min:packed", "makespan:packed", "finish-time:packed"),
    *("fairlead:packed", "max-min, gavel", "max-min, ideal"),
)
"""options and mechanisms beside the default of each policy"""


@dataclass(frozen=True)
class Measured:
    """One simulation."""

    cpu_s: float
    memory_mb: float
    average_h: float
    preemptions: int
    rounds: int

    @property
    def ms_per_round(self) -> float:
        """CPU time per round, start-up included."""
        return 1e3 * self.cpu_s / max(self.rounds, 1)


class Compared(NamedTuple):
    """One simulation, and those of `max-min` before and after it."""

    measured: Measured
    around: tuple[Measured, Measured]


def specs() -> Iterator[str]:
    """Yield all but `max-min`: every policy, every mechanism without one, and variants."""
    yield from sorted({*available("policies"), *mechanisms_without_policy()} - {BASELINE})
    yield from VARIANTS


def measure(spec: str, file: Path, devices: int, limit_s: float) -> Measured:
    """Return the figures of "policy" or "policy, mechanism"; SystemExit names a failure."""
    policy, _, mechanism = spec.partition(", ")
    more = ("--mechanism", mechanism) if mechanism else ()
    result, cpu_s, memory_mb = simulate(file, GAVEL, devices, policy, *more, limit_s=limit_s)
    if unfinished := result["unfinished"]:
        sys.exit(f"{spec}: {unfinished} jobs did not end")
    average_h = result["avg_jct_s"] / 3600
    return Measured(cpu_s, memory_mb, average_h, result["preemptions"], result["rounds"])


def measure_all(
    names: Sequence[str], jobs: int, limit_s: float
) -> tuple[dict[str, Compared], list[str]]:
    """Return the figures by spec, and the failures."""
    measured: dict[str, Compared] = {}
    failures: list[str] = []
    scale = jobs / JOBS
    with tempfile.TemporaryDirectory() as folder:
        file = trace(Path(folder), GAVEL, jobs, RATE * scale, 0)

        def run(spec: str) -> Measured:
            return _shown(spec, measure(spec, file, round(DEVICES * scale), limit_s))

        before = run(BASELINE)
        measured[BASELINE] = Compared(before, (before, before))
        for spec in names:
            try:
                it = run(spec)
            except SystemExit as failure:
                failures.append(f"{spec}: {failure}")
                print(f"{spec:24} FAILED: {failure}", file=sys.stderr, flush=True)
                continue
            after = run(BASELINE)
            measured[spec] = Compared(it, (before, after))
            before = after
    return measured, failures


def _shown(spec: str, it: Measured) -> Measured:
    """Print the figures of a spec on stderr; return them."""
    print(
        f"{spec:24} {it.cpu_s:7.1f} CPU s {it.rounds:7,d} rounds"
        f" {it.ms_per_round:6.2f} ms each {it.memory_mb:6.0f} MB, average"
        f" {it.average_h:7.2f} h, preemptions {it.preemptions:9,d}",
        file=sys.stderr,
        flush=True,
    )
    return it


def figures(measured: dict[str, Compared]) -> Iterator[tuple[str, float]]:
    """Yield the figures that ranges.toml limits."""
    for spec, (it, around) in measured.items():
        cpu = it.cpu_s / fmean(base.cpu_s for base in around)
        yield f"{spec}: CPU over {BASELINE}'s", cpu
        yield f"{spec}: CPU per round over {BASELINE}'s", cpu * around[0].rounds / it.rounds
        yield f"{spec}: MB", it.memory_mb
        yield f"{spec}: average h", it.average_h


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="specs, separated by semicolons")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--limit-s", type=float, default=600.0, help="wall time for each")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not GAVEL.is_file():
        sys.exit("the reference data is neither at ../shared nor at $FAIRLEAD_SHARED")
    names = options.only.split(";") if options.only else list(specs())
    names = [name for name in names if name != BASELINE]
    measured, failures = measure_all(names, options.jobs, options.limit_s)
    if options.json:
        print(json.dumps({spec: asdict(it) for spec, (it, _) in measured.items()}))
    limits = tomllib.loads((HERE / "ranges.toml").read_text(encoding="utf-8"))["full-size"]
    broken = 0
    for name, value in figures(measured) if options.jobs == JOBS else ():
        limit = limits.get(name, {})
        bad = not limit.get("least", value) <= value <= limit.get("most", value)
        broken += bad
        if not options.json and (limit or "per round" in name):
            print(f"{name:45} {value:9.2f}   {limit}{'  BROKEN' if bad else ''}")
    return 1 if broken or failures else 0


if __name__ == "__main__":
    sys.exit(main())
