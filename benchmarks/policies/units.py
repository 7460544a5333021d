"""Speed of packed max-min against cvxpy on the same class program in the same run.

Times the whole policy call on a snapshot of jobs drawn from Gavel's 26 workloads and gangs of
1, 2, 4 and 8: merging jobs, building options, all levels, the tie rule, and the shares of units.
cvxpy solves the first level of the class program only, from finished arrays. CPU time, best of
several; the first call, which also reads the pairs from the speed table, is reported separately.

    python -m benchmarks.policies.units [--quick] [--json]

Needs the reference data (``../shared`` or ``$FAIRLEAD_SHARED``).
"""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time

import cvxpy
import numpy as np

from fairlead.files import read_speeds
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies._packing.table import UnitRules, unit_table
from fairlead.policies.base import mean_speed
from fairlead.policies.max_min import MaxMin
from fairlead.solve.options.problem import OptionProblem

SHARED = Path(os.environ.get("FAIRLEAD_SHARED", Path(__file__).parents[3] / "shared"))
GAVEL = SHARED / "data/gavel/simulation_throughputs.json.gz"
ACCELERATORS = ("v100", "p100", "k80")
LOADS = {"light": 0.5, "even": 1.0, "full": 2.0, "crowded": 8.0}
"""approximate ratio of requested to available devices"""


@dataclass(frozen=True)
class Row:
    case: str
    load: str
    ms: float
    first_ms: float
    peer_ms: float
    gap: float
    difference: float
    """relative difference of the objective from cvxpy's"""

    @property
    def ratio(self) -> float:
        return self.peer_ms / self.ms


def snapshot(table: SpeedTable, jobs: int, load: float) -> Snapshot:
    rng = np.random.default_rng(0)
    drawn: list[InstanceJob] = []
    while len(drawn) < jobs:
        gang = int(rng.choice([1, 2, 4, 8], p=[0.7, 0.1, 0.15, 0.05]))
        workload = table.workloads[rng.integers(len(table.workloads))]
        if gang in table.gangs[workload]:
            speeds = dict(
                zip(ACCELERATORS, table.row(workload, gang, ACCELERATORS).tolist(), strict=True)
            )
            drawn.append(
                InstanceJob(id=str(len(drawn)), workload=workload, gang=gang, speeds=speeds)
            )
    wanted = sum(job.gang for job in drawn)
    cluster = Cluster.of(
        {name: max(8, round(wanted / load / len(ACCELERATORS))) for name in ACCELERATORS}
    )
    return replace(snapshot_of(Instance(cluster, tuple(drawn))), speeds=table)


def class_program(snap: Snapshot) -> OptionProblem:
    profiles = snap.profiles
    mean = mean_speed(profiles.speed, snap.capacity)
    scale = profiles.gang / (profiles.weight * mean)
    table = unit_table(snap, scale, UnitRules(packed=True))
    return table.problem(scale)


def by_cvxpy(program: OptionProblem) -> float:
    """Return the maximum least level, as a user of cvxpy would write it."""
    options, classes = len(program.resource), program.classes
    gain, memberships = np.zeros((classes, options)), np.zeros((classes, options))
    held = np.zeros((len(program.capacity), options))
    at = np.arange(options)
    held[program.resource, at] = program.size
    for member, own in (
        (program.first, program.gain_first),
        (program.second, program.gain_second),
    ):
        there = member >= 0
        np.add.at(gain, (member[there], at[there]), own[there])
        np.add.at(memberships, (member[there], at[there]), 1.0)
    y = cvxpy.Variable(options, nonneg=True)
    level = cvxpy.multiply(gain @ y, 1.0 / program.count)
    rows = [memberships @ y <= program.count, held @ y <= program.capacity]
    least: float = cvxpy.Problem(cvxpy.Maximize(cvxpy.min(level)), rows).solve()
    return least


def measure(table: SpeedTable, jobs: int, load: str, repeats: int) -> Row:
    snap = snapshot(table, jobs, LOADS[load])
    policy, spent = MaxMin(packed=True), []
    for _ in range(repeats):
        started = process_time()
        allocation = policy.allocate(snap)
        spent.append(1e3 * (process_time() - started))
    assert allocation.prove is not None
    assert allocation.objective is not None
    program = class_program(snap)
    peers = []
    for _ in range(2):
        started = process_time()
        least = by_cvxpy(program)
        peers.append(1e3 * (process_time() - started))
    difference = (allocation.objective - least) / least
    gap = allocation.prove().gap
    return Row(
        f"packed max-min, {jobs} jobs", load, min(spent), spent[0], min(peers), gap, difference
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="512 jobs, fewer repeats")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not GAVEL.is_file():
        sys.exit(f"{GAVEL} is missing: set FAIRLEAD_SHARED to the reference data")
    table = read_speeds(GAVEL)
    sizes, repeats = ((512,), 3) if options.quick else ((512, 2048), 7)
    rows = [measure(table, jobs, load, repeats) for jobs in sizes for load in LOADS]
    if options.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
        return 0
    print(f"{'case':26} {'load':8} {'ms':>7} {'first':>7} {'cvxpy':>7} {'ratio':>6} {'gap':>8}")
    for row in rows:
        print(
            f"{row.case:26} {row.load:8} {row.ms:7.1f} {row.first_ms:7.1f} {row.peer_ms:7.1f}"
            f" {row.ratio:6.1f} {row.gap:8.1e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
