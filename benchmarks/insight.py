"""CPU seconds of an audit of 20 tenants on one core, for each tenant policy.

Times ``audit(snap, policy)`` with its default search for misreports, best of several runs, and
counts its solves. Limits are read from ranges.toml (table ``insight``, if there is one); a
broken one makes the exit status 1.

    python -m benchmarks.insight [--quick] [--json]
"""

import argparse
import json
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fairlead.insight.audit.audit import audit
from fairlead.insight.explain.explain import explain
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.rules.priority import create_policy

AUDITED = ("oef", "oef-cooperative", "trading", "tenant-max-min", "max-min")
EXPLAINED = ("max-min", "oef")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    policy: str
    cpu_s: float
    solves: int


def tenants(count: int, seed: int = 0) -> Snapshot:
    """Return distinct tenants with one job each on eight devices of each of three accelerators."""
    rng = np.random.default_rng(seed)
    low, high = rng.uniform(1.2, 3, count), rng.uniform(1.5, 6, count)
    speed = np.sort(np.column_stack([np.ones(count), low, high]), axis=1)
    accelerators = ("k80", "p100", "v100")
    jobs = tuple(
        InstanceJob(
            id=f"job-{i}",
            tenant=f"team-{i}",
            workload=f"w{i}",
            speeds=dict(zip(accelerators, row, strict=True)),
        )
        for i, row in enumerate(speed.tolist())
    )
    return snapshot_of(Instance(Cluster.of(dict.fromkeys(accelerators, 8)), jobs))


def audited(name: str, snap: Snapshot, repeats: int) -> Row:
    best, solves = np.inf, 0
    for _ in range(repeats):
        start = process_time()
        result = audit(snap, create_policy(name), name=name)
        best = min(best, process_time() - start)
        solves = result.misreports.solves if result.misreports else 0
    return Row(f"audit of {len(result.participants)} tenants", name, best, solves)


def explained(name: str, snap: Snapshot, repeats: int) -> Row:
    best, solves = np.inf, 0
    for _ in range(repeats):
        start = process_time()
        explanation = explain(snap, create_policy(name), "job-3", name=name)
        best = min(best, process_time() - start)
        solves = 1 + len(explanation.outcomes)
    return Row(f"explain one of {len(snap.job)} jobs", name, best, solves)


def broken(rows: list[Row], limits: list[dict[str, Any]]) -> list[str]:
    """Return a line for every limit that some row breaks."""
    return [
        f"{row.case}, {row.policy}: cpu_s {row.cpu_s:.3g}, not at most {limit['at_most']}"
        for limit in limits
        for row in rows
        if limit["case"] == row.case and row.cpu_s > limit["at_most"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of each")
    parser.add_argument("--json", action="store_true", help="print rows and verdict as JSON")
    options = parser.parse_args()
    repeats = 1 if options.quick else 3
    snap = tenants(20)
    rows = [audited(name, snap, repeats) for name in AUDITED]
    rows += [explained(name, snap, repeats) for name in EXPLAINED]
    limits = tomllib.loads(Path(__file__).with_name("ranges.toml").read_text(encoding="utf-8"))
    failures = broken(rows, limits.get("insight", []))
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "broken": failures}, indent=1))
    else:
        print(f"{'case':26} {'policy':16} {'CPU s':>7} {'solves':>7}")
        for row in rows:
            print(f"{row.case:26} {row.policy:16} {row.cpu_s:7.2f} {row.solves:7d}")
        for line in failures:
            print("broken:", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
