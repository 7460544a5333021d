"""Compares the decisions of two versions of Fairlead, bit by bit.

``python tests/versions/compare.py OLD/src NEW/src`` runs the same simulations, allocations,
audits and explanations with both versions and lists those that differ in anything but their
running times. The traces are the shared reference ones, where present, and the bundled one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_TIMES = {"cpu_s", "wall_s", "solve_s"}
_SHARES = (
    "max-min",
    "max-min:agnostic",
    "max-min:packed",
    "makespan",
    "finish-time",
    "hierarchical",
    "fifo",
    "sjf",
    "throughput",
    "isolated",
    "oef",
    "oef-cooperative",
    "tenant-max-min",
    "trading",
)
_MECHANISMS = (
    "gandiva",
    "gandiva-fair",
    "hadar",
    "hadare",
    "tiresias",
    "themis",
    "allox",
    "capacity",
    "srtf",
    "lottery",
    "gavel-gandiva",
)


def main() -> int:
    """Run every case with both versions; return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="src folder of the one version")
    parser.add_argument("new", type=Path, help="src folder of the other version")
    parser.add_argument("--quick", action="store_true", help="leave out the reference traces")
    options = parser.parse_args()
    shared = Path(os.environ.get("FAIRLEAD_SHARED", Path(__file__).parents[3] / "shared"))
    differing = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        instance = Path(folder, "instance.json")
        instance.write_text(json.dumps(_instance()))
        cases = list(_small(str(instance)))
        if not options.quick and shared.is_dir():
            cases += _reference(shared)
        for case in cases:
            old, new = pool.map(_run, (options.old, options.new), (case, case))
            differing += old != new
            mark = "same     " if old == new else "DIFFERENT"
            sys.stdout.write(f"{mark} fairlead {' '.join(case)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{differing} of {len(cases)} cases differ\n")
    return min(differing, 1)


def _small(instance: str) -> Iterator[list[str]]:
    for policy in _SHARES:
        yield ["allocate", "--instance", instance, "--policy", policy]
        yield ["audit", "--instance", instance, "--policy", policy]
        yield ["explain", "j3", "--instance", instance, "--policy", policy]
    for policy in (*_SHARES, *_MECHANISMS):
        yield ["simulate", "--policy", policy]
    yield ["simulate", "--policy", "max-min", "--mechanism", "gavel"]
    yield ["simulate", "--policy", "max-min", "--mechanism", "ideal"]
    yield ["simulate", "--policy", "oef", "--mechanism", "rounding", "--physics", "gandiva"]


def _reference(shared: Path) -> Iterator[list[str]]:
    speeds = str(shared / "data/gavel/simulation_throughputs.json.gz")
    gavel = shared / "reference/gavel"
    for trace, cluster in (
        ("cont_single_300_lam1800_seed0.csv.gz", "v100=12,p100=12,k80=12"),
        ("static_single_100_seed0.csv.gz", "v100=6,p100=6,k80=6"),
    ):
        for policy in ("max-min", "makespan", "finish-time", "allox", "max-min:packed"):
            inputs = ["--trace", str(gavel / trace), "--cluster", cluster, "--speeds", speeds]
            yield ["simulate", "--policy", policy, *inputs]


def _run(source: Path, case: list[str]) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *case, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.returncode, done.stderr.splitlines()[-1:]
    return _without_times(json.loads(done.stdout))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_without_times(part) for part in value]
    return value


def _instance() -> dict[str, Any]:
    """Return an instance whose jobs have few speeds in common, by a fixed rule."""
    jobs = []
    for i in range(24):
        base = 1.0 + (i * 7 % 11) / 3.0
        jobs.append(
            {
                "id": f"j{i}",
                "tenant": f"t{i % 5}",
                "gang": 1 + i % 3 // 2,
                "weight": 1.0 + i % 4 / 2.0,
                "steps_left": 1000.0 * (1 + i * 5 % 13),
                "elapsed_s": 60.0 * (i % 7),
                "speeds": {"v100": base * (2 + i % 4), "p100": base * 1.5, "k80": base},
            }
        )
    tenants = [{"id": f"t{i}", "weight": 1.0 + i % 2} for i in range(5)]
    return {"cluster": {"v100": 4, "p100": 4, "k80": 6}, "jobs": jobs, "tenants": tenants}


if __name__ == "__main__":
    sys.exit(main())
