"""Speed of tenant-level policies against cvxpy with its default solver in the same run.

Times whole allocations of a snapshot, as in a round: jobs to virtual tenants,
normalisation, merging, solving. The peer solves the same program, written as in the paper, with
compilation included, over distinct tenants only where it is infeasible without merging.
Times are milliseconds of process CPU, the best of several; certificates are made outside the
timed part.

    python -m benchmarks.policies.tenants [--quick] [--json]
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from time import process_time
from typing import Any

import cvxpy
import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.oef import Oef
from fairlead.policies.oef_cooperative import OefCooperative
from fairlead.policies.trading import Trading

cp: Any = cvxpy  # its types are incomplete


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds of process CPU."""

    case: str
    ms: float
    at_most: float | None
    peer_ms: float | None
    gap: float | None
    apart: float | None
    """relative difference of the peer's objective"""

    @property
    def ratio(self) -> float | None:
        return None if self.peer_ms is None else self.peer_ms / self.ms


def speedups(tenants: int, width: int, seed: int, *, noise: float = 0.05) -> FloatArray:
    """Return speedups of distinct tenants over the slowest accelerator: a trend with noise."""
    rng = np.random.default_rng(seed)
    trend = np.linspace(0.0, 1.5, width) * rng.uniform(0.7, 1.3, (tenants, 1))
    table = np.exp(trend + noise * rng.normal(size=(tenants, width)))
    table /= table[:, :1]
    return np.maximum(table, 1.0)


def snapshot(table: FloatArray, devices: int) -> Snapshot:
    accelerators = [f"gpu{j}" for j in range(table.shape[1])]
    jobs = tuple(
        InstanceJob(id=f"j{i}", tenant=f"u{i}", speeds=dict(zip(accelerators, row, strict=True)))
        for i, row in enumerate(table.tolist())
    )
    return snapshot_of(Instance(Cluster.of(dict.fromkeys(accelerators, devices)), jobs))


def best_ms(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        call()
        times.append(process_time() - start)
    return 1e3 * min(times)


def peer_equal(table: FloatArray, capacity: FloatArray) -> float:
    """OEF's program 9; all throughputs are equal to one variable."""
    share, level = cp.Variable(table.shape, nonneg=True), cp.Variable()
    limits = [
        cp.sum(share, axis=0) <= capacity,
        cp.sum(cp.multiply(table, share), axis=1) == level,
    ]
    problem = cp.Problem(cp.Maximize(level), limits)
    problem.solve()
    return float(problem.value)


def peer_envy_free(table: FloatArray, capacity: FloatArray, weight: FloatArray) -> float:
    """OEF's program 10 over distinct tenants; ``share`` is per unit of weight."""
    share = cp.Variable(table.shape, nonneg=True)
    own = cp.sum(cp.multiply(table, share), axis=1)
    others = table @ share.T
    envy = others <= cp.reshape(own, (len(table), 1), order="C") @ np.ones((1, len(table)))
    problem = cp.Problem(cp.Maximize(weight @ own), [weight @ share <= capacity, envy])
    problem.solve()
    return float(problem.value)


def measure(
    case: str,
    policy: Oef | OefCooperative | Trading,
    snap: Snapshot,
    at_most: float | None,
    repeats: int,
    peer: Callable[[], float] | None = None,
) -> Row:
    ms = best_ms(lambda: policy.allocate(snap), repeats)
    allocation = policy.allocate(snap)
    gap = allocation.prove().gap if allocation.prove else None
    if peer is None:
        return Row(case, ms, at_most, None, gap, None)
    start = process_time()
    theirs = peer()
    peer_ms = 1e3 * (process_time() - start)
    ours = allocation.objective
    assert ours is not None
    return Row(case, ms, at_most, peer_ms, gap, abs(theirs / ours - 1))


def rows(quick: bool) -> list[Row]:
    rows = []
    table = speedups(1000, 10, seed=1)
    capacity = np.full(10, 100.0)
    rows.append(
        measure(
            "oef, 1000 distinct × 10",
            Oef(),
            snapshot(table, 100),
            150.0,
            5,
            partial(peer_equal, table, capacity),
        )
    )
    for width in (3, 10):
        classes = speedups(26, width, seed=width)
        class_of = np.random.default_rng(width).integers(0, 26, 1000)
        count, devices = np.bincount(class_of, minlength=26).astype(float), np.full(width, 100.0)
        rows.append(
            measure(
                f"oef-cooperative, 1000 of 26 profiles × {width}",
                OefCooperative(),
                snapshot(classes[class_of], 100),
                40.0,
                5,
                partial(peer_envy_free, classes, devices, count),
            )
        )
    for width in (3, 10):
        distinct = speedups(300, width, seed=width)
        devices = np.full(width, 30.0)
        # The peer takes half a minute with three accelerators and is skipped with ten.
        peer = partial(peer_envy_free, distinct, devices, np.ones(300))
        rows.append(
            measure(
                f"oef-cooperative, 300 distinct × {width}",
                OefCooperative(),
                snapshot(distinct, 30),
                10_000.0,
                1,
                None if quick or width > 3 else peer,
            )
        )
    rows.append(measure("trading, 300 distinct × 10", Trading(), snapshot(distinct, 30), None, 3))
    return rows


def show(table: list[Row]) -> None:
    print(
        f"{'case':42} {'ms':>8} {'limit':>8} {'cvxpy ms':>9} {'ratio':>7} {'gap':>8} {'apart':>8}"
    )
    for row in table:
        limit = "" if row.at_most is None else f"{row.at_most:.0f}"
        peer = "" if row.peer_ms is None else f"{row.peer_ms:.0f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        gap = "" if row.gap is None else f"{row.gap:.1e}"
        apart = "" if row.apart is None else f"{row.apart:.1e}"
        print(f"{row.case:42} {row.ms:8.1f} {limit:>8} {peer:>9} {ratio:>7} {gap:>8} {apart:>8}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the slowest peer")
    parser.add_argument("--json", action="store_true", help="print rows and verdict as JSON")
    options = parser.parse_args()
    table = rows(options.quick)
    broken = [
        f"{row.case}: {row.ms:.1f} ms, not at most {row.at_most:.0f}"
        for row in table
        if row.at_most is not None and row.ms > row.at_most
    ]
    if options.json:
        listed = [asdict(row) | {"ratio": row.ratio} for row in table]
        print(json.dumps({"rows": listed, "broken": broken}, indent=1))
    else:
        show(table)
        for line in broken:
            print("broken:", line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
