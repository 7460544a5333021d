"""Schedules of `fairlead` against `max-min`, and of gangs against the fluid ideal.

    python -m benchmarks.schedules [--cases NAME,…] [--quick] [--json]

Needs Gavel's speeds and traces, Philly's log and Sia's profiles and workloads beside the checkout
(``../shared`` or ``$FAIRLEAD_SHARED``). Prints for every trace and restart cost the average and
median completion time, the preemptions, and how many jobs end later than under the fluid
`isolated` (an equal split of every accelerator), with the worst ratio. Ratios are checked against
ranges.toml (``schedules``).
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from benchmarks.ranges import outside, report
from benchmarks.schedules.cases import (
    SHARED,
    Case,
    continuous_cases,
    philly_cases,
    static_cases,
)
from benchmarks.schedules.sia import sia_cases

from fairlead.files import read_cluster, read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.shares import Shares
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.snapshot import Snapshot
from fairlead.policies.fairlead import Fairlead
from fairlead.sim.driver import simulate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

ROUND_S = 360.0
RESTART_S = (0.0, 60.0)
FAMILIES = {"gangs": " with gangs", "philly": " on Philly", "sia": " on Sia"}
"""first word of a case's name → its traces in ranges.toml; the others are of single devices"""
WRONG = 3.0
"""greatest factor between declared and true lengths"""


@dataclass(frozen=True)
class WrongLengths:
    """`fairlead` with wrong lengths: every job's total is off by a factor up to WRONG."""

    policy: Fairlead

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy."""
        return capabilities_of(self.policy)

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the policy's shares for the wrong lengths."""
        return self.policy.allocate(_with_wrong_lengths(snap))

    def device_value(self, snap: Snapshot) -> FloatArray:
        """Return the policy's values of devices for the wrong lengths."""
        return self.policy.device_value(_with_wrong_lengths(snap))


def _with_wrong_lengths(snap: Snapshot) -> Snapshot:
    factor = [WRONG ** (2 * random.Random(job).random() - 1) for job in snap.job.tolist()]
    return replace(snap, total_steps=snap.total_steps * factor)


@dataclass(frozen=True)
class Figures:
    """Results of one policy on one trace."""

    avg_h: float
    median_h: float
    makespan_h: float
    preemptions: int
    late: float
    """share of jobs that end later than under the fluid `isolated`"""
    worst: float
    """greatest completion time relative to that under the fluid `isolated`"""


def run(case: Case, mechanism: Any, restart_s: float = 0.0) -> Record:
    """Return the record of a case under a mechanism."""
    scenario = Scenario(
        cluster=read_cluster(case.cluster),
        speeds=case.speeds,
        jobs=case.jobs,
        mechanism=mechanism,
        restore_cost_s=restart_s,
    )
    return simulate(scenario)[0]


def completion_s(case: Case, record: Record) -> FloatArray:
    """Return jobs → seconds from submission to end."""
    jct: FloatArray = record.finished_at - np.array([job.arrival_at for job in case.jobs])
    return jct


def figures(case: Case, record: Record, isolated_s: FloatArray) -> Figures:
    """Return the figures of a record."""
    jct = completion_s(case, record)
    ratio = jct / isolated_s
    return Figures(
        avg_h=float(jct.mean()) / 3600,
        median_h=float(np.median(jct)) / 3600,
        makespan_h=float(record.finished_at.max()) / 3600,
        preemptions=int(record.preemptions.sum()),
        late=float((ratio > 1.0 + 1e-6).mean()),
        worst=float(ratio.max()),
    )


def compare_completion(cases: Sequence[Case], policies: Sequence[str]) -> dict[str, Figures]:
    """Return "case, restart cost, policy" → figures; the wrong lengths only without cost."""
    results: dict[str, Figures] = {}
    for case in cases:
        fluid = run(case, create_mechanism("isolated", "ideal"))
        isolated_s = completion_s(case, fluid)
        for restart_s in RESTART_S:
            for policy in policies:
                made = create_mechanism(policy, None, ROUND_S)
                _add(results, case, f"{restart_s:g} s", policy, made, isolated_s)
        wrong = Shares(WrongLengths(Fairlead()), ROUND_S)
        _add(results, case, "0 s", "fairlead, wrong lengths", wrong, isolated_s)
    return results


def _add(
    results: dict[str, Figures],
    case: Case,
    cost: str,
    policy: str,
    mechanism: Any,
    isolated_s: FloatArray,
) -> None:
    record = run(case, mechanism, float(cost.split(maxsplit=1)[0]))
    result = results[f"{case.name}, {cost}, {policy}"] = figures(case, record, isolated_s)
    print(
        f"{case.name:13} {cost:>5} {policy:24} average {result.avg_h:6.2f} h, median"
        f" {result.median_h:5.2f} h, preemptions {result.preemptions:7,d}, later than isolated"
        f" {result.late:6.1%}, at worst × {result.worst:.2f}",
        file=sys.stderr,
        flush=True,
    )


def compare_gangs(cases: Sequence[Case], policies: Sequence[str]) -> dict[str, float]:
    """Return "case, policy" → makespan (static) or average completion over that of `ideal`."""
    ratios: dict[str, float] = {}
    for case in cases:
        for policy in policies:
            fluid = run(case, create_mechanism(policy, "ideal"))
            rounds = run(case, create_mechanism(policy, None, ROUND_S))
            if policy.startswith("makespan"):
                reached, ideal = rounds.finished_at.max(), fluid.finished_at.max()
            else:
                reached = completion_s(case, rounds).mean()
                ideal = completion_s(case, fluid).mean()
            ratio = ratios[f"{case.name}, {policy}"] = float(reached / ideal)
            print(
                f"{case.name:13} {policy:16} {reached / 3600:7.2f} h, ideal {ideal / 3600:7.2f} h:"
                f" × {ratio:.3f}",
                file=sys.stderr,
                flush=True,
            )
    return ratios


def summary(results: dict[str, Figures], ratios: dict[str, float]) -> dict[str, float]:
    """Return the ratios that ranges.toml limits, each the worst over the traces."""
    worst: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        worst[name] = max(worst.get(name, -np.inf), value)

    for key, mine in results.items():
        case, cost, policy = key.split(", ", 2)
        if policy == "max-min":
            continue
        other = results[f"{case}, {cost}, max-min"]
        label = f"{policy}{FAMILIES.get(case.split()[0], '')}, restart {cost}"
        note(f"{label}: average over max-min's", mine.avg_h / other.avg_h)
        note(f"{label}: median over max-min's", mine.median_h / other.median_h)
        note(f"{label}: preemptions over max-min's", mine.preemptions / other.preemptions)
        note(f"{label}: late jobs more than max-min's", mine.late - other.late)
    for key, ratio in ratios.items():
        note(f"{key.split(', ')[1]}: gangs over ideal", ratio)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, no 5,000 jobs")
    parser.add_argument("--cases", help="names of traces, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    table = SHARED / "data/gavel/simulation_throughputs.json.gz"
    if not table.is_file():
        sys.exit("the reference data is neither at ../shared nor at $FAIRLEAD_SHARED")
    speeds = read_speeds(table)
    continuous = continuous_cases(speeds, quick=options.quick)
    if not options.quick:
        continuous += [*philly_cases(speeds), *sia_cases()]
    static = static_cases(speeds, quick=options.quick)
    if options.cases:
        names = options.cases.split(",")
        continuous = [case for case in continuous if case.name in names]
        static = [case for case in static if case.name in names]
    results = compare_completion(continuous, ("max-min", "fairlead"))
    ratios = compare_gangs(static, ("makespan", "max-min", "finish-time"))
    worst = summary(results, ratios)
    if options.json:
        runs = {key: asdict(value) for key, value in results.items()}
        print(json.dumps({"runs": runs, "gangs": ratios, "summary": worst}))
        return 1 if outside("schedules", worst) else 0
    return report("schedules", worst)


if __name__ == "__main__":
    sys.exit(main())
