"""CPU time and memory of whole simulations on one core, and the gain of heterogeneity awareness.

    python -m benchmarks.simulation [--quick] [--json]

Uses Gavel's speeds when the reference data is beside the checkout (``../shared`` or
``$FAIRLEAD_SHARED``), else the bundled ones; limits apply to the former. Each run is a
separate process, so that memory and CPU time include the start-up.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("FAIRLEAD_SHARED", HERE.parents[1] / "shared"))
GAVEL = SHARED / "data/gavel/simulation_throughputs.json.gz"


def fairlead(*args: object, limit_s: float | None = None) -> tuple[dict[str, Any], float, float]:
    """Run a command; return its JSON, its CPU seconds and its peak memory in MB.

    SystemExit names a failure, or that ``limit_s`` of wall time have passed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = (
        "import resource, sys; from fairlead.cli.main import app;"
        "sys.argv[0] = 'fairlead';\n"
        "try: app(standalone_mode=False)\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *map(str, args)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"not done after {limit_s:g} s")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return result, cpu, int(done.stderr.split()[-1]) / 1000


def trace(
    folder: Path, speeds: object, jobs: int, rate: float, seed: int, window: str = ""
) -> Path:
    out = folder / f"{jobs}-{rate}-{seed}-{bool(window)}.csv"
    more = ("--window", window) if window else ()
    fairlead(
        "trace", "generate", "--kind", "continuous-single", "--jobs", jobs, "--rate", rate,
        "--seed", seed, "--speeds", speeds, "--out", out, *more,
    )  # fmt: skip
    return out


def simulate(
    file: Path,
    speeds: object,
    devices: int,
    policy: str,
    *more: object,
    limit_s: float | None = None,
) -> Any:
    cluster = f"v100={devices},p100={devices},k80={devices}"
    args = ("--cluster", cluster, "--speeds", speeds, "--trace", file, "--policy", policy)
    return fairlead("simulate", *args, *more, "--json", limit_s=limit_s)


def measure(*, quick: bool) -> dict[str, float]:
    speeds: object = GAVEL if GAVEL.is_file() else "gandiva-fair"
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = trace(folder, speeds, 10, 5.6, 0)
        starts = [simulate(few, speeds, 36, "max-min") for _ in range(6)]
        figures["start-up, CPU s"] = min(cpu for _, cpu, _ in starts)
        small = trace(folder, speeds, 5000, 5.6, 0)
        runs = [simulate(small, speeds, 36, "max-min") for _ in range(1 if quick else 3)]
        figures["5000 jobs, CPU s"] = min(cpu for _, cpu, _ in runs)
        figures["5000 jobs, MB"] = runs[0][2]
        if not quick:
            big = trace(folder, speeds, 50_000, 56.0, 0)
            _, cpu, memory = simulate(big, speeds, 360, "max-min")
            figures["50000 jobs, CPU s"] = cpu
            figures["50000 jobs, MB"] = memory
            figures["50000 over 5000 jobs, ratio"] = cpu / figures["5000 jobs, CPU s"]
        ratios = []
        for seed in range(1 if quick else 3):
            file = trace(folder, speeds, 5000, 5.6, seed, "4000:5000")
            aware, blind = (
                simulate(file, speeds, 36, policy, "--window", "4000:5000")[0]["avg_jct_s"]
                for policy in ("max-min", "max-min:agnostic")
            )
            print(
                f"seed {seed}: jobs 4000-5000, average JCT {aware / 3600:.1f} h,"
                f" agnostic {blind / 3600:.1f} h, ratio {blind / aware:.2f}",
                file=sys.stderr,
            )
            ratios.append(blind / aware)
        figures["agnostic over max-min, least JCT ratio"] = min(ratios)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, no 50,000 jobs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = measure(quick=options.quick)
    limits = tomllib.loads((HERE / "ranges.toml").read_text())["simulation"]
    broken = []
    for name, value in figures.items():
        limit = limits.get(name, {})
        if "most" in limit and value > limit["most"]:
            broken.append(f"{name}: {value:.3g} is above {limit['most']}")
        if "least" in limit and value < limit["least"]:
            broken.append(f"{name}: {value:.3g} is below {limit['least']}")
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:45} {value:10.3f}   {limits.get(name, '')}")
    if broken and GAVEL.is_file():
        sys.exit("outside benchmarks/ranges.toml:\n  " + "\n  ".join(broken))


if __name__ == "__main__":
    main()
