"""Speed of max-min against cvxpy with its default solver in the same run.

Times whole calls, as a user would make them:

- "first level": the plain max-min program, ``solve_least_level(problem)`` against
  ``cvxpy.Problem.solve()`` of the same program, compilation included;
- "all levels": ``solve_max_min(problem)``, the full lexicographic order that the policies use,
  with merging and the tie rule; its ratio also refers to cvxpy's time for the first level.

Times are process CPU, the best of several calls; certificates are recomputed outside the timed
part. Limits are read from ranges.toml; a broken
one makes the exit status 1.

    python -m benchmarks.solver [--quick] [--json]
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import cvxpy
import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot
from fairlead.policies.max_min import MaxMin
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.solver import MaxMinSolver, solve_least_level, solve_max_min

cp: Any = cvxpy  # its types are incomplete

LOADS = {"heavy": 2.0, "balanced": 1.0, "light": 0.5}
DEVICES = np.array([36.0, 36.0, 36.0])
MERGED_SEEDS = (104, 0, 1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds."""

    case: str
    load: str
    ms: float
    peer_ms: float | None
    gap: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.peer_ms is None else self.peer_ms / self.ms


def instance(classes: int, width: int, load: float, seed: int) -> MaxMinProblem:
    """Return classes of one member; ``load`` is requested devices per available device."""
    rng = np.random.default_rng(seed)
    gain = rng.uniform(0.2, 2.0, (classes, width)) * np.linspace(1.0, 3.0, width)
    gain /= gain.mean(axis=1, keepdims=True)
    size = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], classes)
    capacity = np.full(width, size.sum() / load / width)
    return MaxMinProblem(gain, size, np.ones(classes), capacity)


def best_ms(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        call()
        times.append(process_time() - start)
    return 1e3 * min(times)


def cvxpy_ms(problem: MaxMinProblem, repeats: int) -> float:
    held = problem.count * problem.size

    def call() -> None:
        share = cp.Variable(problem.gain.shape, nonneg=True)
        least = cp.min(cp.sum(cp.multiply(problem.gain, share), axis=1))
        limits = [cp.sum(share, axis=1) <= 1, held @ share <= problem.capacity]
        cp.Problem(cp.Maximize(least), limits).solve()

    return best_ms(call, repeats)


def distinct(classes: int, width: int, load: str, *, peer: bool, repeats: int) -> list[Row]:
    problem = instance(classes, width, LOADS[load], seed=classes + width)
    peer_ms = cvxpy_ms(problem, 2) if peer else None
    rows = []
    for name, solve in (("first level", solve_least_level), ("all levels", solve_max_min)):
        ms = best_ms(partial(solve, problem), repeats)
        gap = solve(problem).certificate.gap
        rows.append(Row(f"{classes} classes × {width}, {name}", load, ms, peer_ms, gap))
    return rows


def merged(load: str, repeats: int) -> list[Row]:
    """Measure the allocation of 100,000 jobs of 104 profiles by the policy.

    Times differ severalfold between seeds, mostly by whether guessed prices lead to the answer:
    besides the seed that has been measured from the beginning there is a median of several.
    """
    times, gaps = [], []
    for seed in MERGED_SEEDS:
        profiles_problem = instance(104, 3, 1.0, seed)
        profile_of = np.random.default_rng(1).integers(0, 104, 100_000)
        devices = int(profiles_problem.size[profile_of].sum() / LOADS[load] / 3)
        snap = crowd(profiles_problem, profile_of, devices)
        times.append(best_ms(partial(MaxMin().allocate, snap), repeats))
        allocation = MaxMin().allocate(snap)
        assert allocation.prove is not None
        gaps.append(allocation.prove().gap)
    case, median = "100000 jobs, 104 classes", float(np.median(times))
    return [
        Row(case, load, times[0], None, gaps[0]),
        Row(f"{case}, {len(times)} seeds", load, median, None, max(gaps)),
    ]


def crowd(profiles_problem: MaxMinProblem, profile_of: IntArray, devices: int) -> Snapshot:
    """Return many jobs of few profiles on ``devices`` devices of each of three accelerators."""
    n = len(profile_of)
    size = profiles_problem.size.astype(np.int64)
    profiles = Profiles(profiles_problem.gain, size, np.ones(len(size)), np.zeros_like(size))
    cluster = Cluster.of(dict.fromkeys(("a", "b", "c"), devices))
    none = np.full(n, -1)
    return Snapshot(
        at=0.0,
        starts_at=0.0,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(3 * devices),
        tenants=(),
        profiles=profiles,
        job=np.arange(n),
        profile=profile_of,
        arrival_at=np.zeros(n),
        total_steps=np.ones(n),
        steps=np.zeros(n),
        deadline_at=np.full(n, np.inf),
        priority=np.zeros(n),
        received_s=np.zeros((n, 3)),
        on=none,
        lease=none,
        holds=np.full((1, 3 * devices), -1),
    )


def warm(members: int, steps: int) -> Row:
    """Measure 26 classes on 108 devices; a member arrives or leaves between two solves."""
    rng = np.random.default_rng(members)
    gain = rng.uniform(0.3, 2.0, (26, 3))
    gain /= gain.mean(axis=1, keepdims=True)
    size = rng.choice([1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0], 26)
    count = rng.multinomial(members, np.ones(26) / 26).astype(float)
    solver, spent, gap = MaxMinSolver(), 0.0, 0.0
    for step in range(steps):
        k = rng.integers(26)
        count[k] += -1 if count.sum() > members and count[k] > 0 else 1
        here = np.flatnonzero(count)
        problem = MaxMinProblem(gain[here], size[here], count[here], DEVICES)
        keys = here.tolist()
        start = process_time()
        answer = solver.solve(problem, keys)
        spent += process_time() - start
        if step % 50 == 0:
            gap = max(gap, answer.certificate.gap)
    return Row("26 classes, warm", f"{members} members", 1e3 * spent / steps, None, gap)


def measure(quick: bool) -> list[Row]:
    rows = [warm(members, 300 if quick else 1500) for members in (60, 100, 150, 250)]
    sizes = [(2048, 3)] if quick else [(512, 3), (2048, 3), (8192, 3), (2048, 10)]
    for load in LOADS:
        rows += merged(load, 3)
        for n, width in sizes:
            rows += distinct(n, width, load, peer=True, repeats=5)
        if not quick:
            rows += distinct(1_000_000, 3, load, peer=False, repeats=2)
    return rows


def broken(rows: list[Row], limits: list[dict[str, Any]]) -> list[str]:
    """Return a line for every limit that a row breaks."""
    lines = []
    for limit in limits:
        for row in rows:
            if limit.get("case", row.case) != row.case:
                continue
            if row.load not in limit.get("loads", [row.load]):
                continue
            value = getattr(row, limit["figure"])
            below, above = limit.get("at_most", np.inf), limit.get("at_least", -np.inf)
            if value is None or not above <= value <= below:
                bound = f"at most {below}" if "at_most" in limit else f"at least {above}"
                lines.append(f"{row.case}, {row.load}: {limit['figure']} {value:.3g}, not {bound}")
    return lines


def show(rows: list[Row]) -> None:
    print(f"{'case':38} {'load':12} {'ms':>9} {'cvxpy ms':>9} {'ratio':>6} {'gap':>8}")
    for row in rows:
        peer = "" if row.peer_ms is None else f"{row.peer_ms:9.1f}"
        ratio = "" if row.ratio is None else f"{row.ratio:6.1f}"
        print(f"{row.case:38} {row.load:12} {row.ms:9.3f} {peer:>9} {ratio:>6} {row.gap:8.1e}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small cases only")
    parser.add_argument("--json", action="store_true", help="print rows and verdict as JSON")
    options = parser.parse_args()
    rows = measure(options.quick)
    limits = tomllib.loads(Path(__file__).with_name("ranges.toml").read_text(encoding="utf-8"))
    failures = broken(rows, limits["solver"])
    if options.json:
        table = [asdict(row) | {"ratio": row.ratio} for row in rows]
        print(json.dumps({"rows": table, "broken": failures}, indent=1))
    else:
        show(rows)
        for line in failures:
            print("broken:", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
