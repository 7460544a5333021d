"""Schedules of `fairlead` against `max-min`, and of gangs against the fluid ideal.

    python -m benchmarks.schedules [--cases NAME,…] [--jobs N] [--keep FILE] [--quick] [--json]

Needs Gavel's speeds and traces, Philly's log and Sia's profiles and workloads beside the checkout
(``../shared`` or ``$FAIRLEAD_SHARED``). Prints on standard error for every trace and restart cost
the average and median completion time, the preemptions, and how many jobs end later than under
the fluid `isolated` (an equal split of every accelerator), with the worst ratio; for traces of
gangs also the ratio to the fluid ideal. Ratios are checked against ranges.toml (``schedules``).
A stopped run continues with ``--keep FILE``: simulations in the file are not repeated.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from benchmarks.ranges import outside, report
from benchmarks.schedules.results import Outcomes, outcomes_of
from benchmarks.schedules.runs import REALISED, TABLE, Outcome, Run, cases, has_gangs, runs_of

FAMILIES = {"gangs": " with gangs", "philly": " on Philly", "sia": " on Sia"}
"""first word of a case's name → its traces in ranges.toml; the others are of single devices"""
QUICK = ("shared", "sibling 1", "gangs 1", "static 0")


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


def figures(outcome: Outcome, isolated: Outcome) -> Figures:
    """Return the figures of an outcome."""
    jct = np.array(outcome.completion_s)
    ratio = jct / np.array(isolated.completion_s)
    return Figures(
        avg_h=float(jct.mean()) / 3600,
        median_h=float(np.median(jct)) / 3600,
        makespan_h=outcome.makespan_s / 3600,
        preemptions=outcome.preemptions,
        late=float((ratio > 1.0 + 1e-6).mean()),
        worst=float(ratio.max()),
    )


def measured_h(of: Run, outcome: Outcome) -> float:
    """Return the makespan under `makespan`, else the average completion time, in hours."""
    if of.policy == "makespan":
        return outcome.makespan_s / 3600
    return float(np.mean(outcome.completion_s)) / 3600


def completion(outcomes: Outcomes) -> dict[str, Figures]:
    """Return "case, restart cost, policy" → figures, as far as there are outcomes."""
    return {
        run.name: figures(outcome, outcomes[isolated])
        for run, outcome in outcomes.items()
        if not run.fluid
        and run.policy not in REALISED[1:]
        and (isolated := Run(run.case, "isolated", fluid=True)) in outcomes
    }


def over_ideal(outcomes: Outcomes) -> dict[str, float]:
    """Return "case, policy" → makespan or average completion over that of the fluid ideal."""
    return {
        f"{run.case}, {run.policy}": measured_h(run, outcome) / measured_h(run, outcomes[fluid])
        for run, outcome in outcomes.items()
        if has_gangs(run.case)
        and not run.fluid
        and not run.restart_s
        and (fluid := Run(run.case, run.policy, fluid=True)) in outcomes
    }


def summary(results: Mapping[str, Figures], ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios that ranges.toml limits, each the worst over the traces."""
    worst: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        worst[name] = max(worst.get(name, -np.inf), value)

    for key, mine in results.items():
        case, cost, policy = key.split(", ", 2)
        other = results.get(f"{case}, {cost}, max-min")
        if policy == "max-min" or other is None:
            continue
        label = f"{policy}{FAMILIES.get(case.split()[0], '')}, restart {cost}"
        note(f"{label}: average over max-min's", mine.avg_h / other.avg_h)
        note(f"{label}: median over max-min's", mine.median_h / other.median_h)
        note(f"{label}: preemptions over max-min's", mine.preemptions / other.preemptions)
        note(f"{label}: late jobs more than max-min's", mine.late - other.late)
    for key, ratio in ratios.items():
        case, policy = key.split(", ")
        arrivals = "static" if case.startswith("static ") else "continuous"
        note(f"{policy}, {arrivals} gangs: over ideal", ratio)
    return worst


def _progress(total: int, of: Run, outcomes: Outcomes) -> None:
    """Print one line about a simulation that has ended."""
    text = f"{measured_h(of, outcomes[of]):7.2f} h"
    result = completion({of: outcomes[of]} | _fluid_of(of.case, outcomes)).get(of.name)
    if result is not None:
        text = (
            f"average {result.avg_h:6.2f} h, median {result.median_h:5.2f} h, preemptions"
            f" {result.preemptions:7,d}, later than isolated {result.late:6.1%}, at worst"
            f" × {result.worst:.2f}"
        )
    for ratio in over_ideal({of: outcomes[of]} | _fluid_of(of.case, outcomes)).values():
        text += f", × {ratio:.3f} of ideal"
    print(f"{len(outcomes)}/{total} {of.name}: {text}", file=sys.stderr, flush=True)


def _fluid_of(case: str, outcomes: Outcomes) -> Outcomes:
    return {run: outcome for run, outcome in outcomes.items() if run.case == case and run.fluid}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, no 5,000 jobs")
    parser.add_argument("--cases", help="names of traces, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--keep", type=Path, help="file of results, to continue a stopped run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs: {options.jobs} not allowed: expected 1 or more")
    if not TABLE.is_file():
        sys.exit("the reference data is neither at ../shared nor at $FAIRLEAD_SHARED")
    names = QUICK if options.quick else tuple(cases())
    if options.cases:
        names = tuple(options.cases.split(","))
        unknown = [name for name in names if name not in cases()]
        if unknown:
            parser.error(f"--cases: {unknown[0]} unknown: expected some of {', '.join(cases())}")
    runs = [run for name in names for run in runs_of(name)]
    outcomes = outcomes_of(
        runs,
        lambda run, so_far: _progress(len(runs), run, so_far),
        jobs=options.jobs,
        keep=options.keep,
    )
    results, ratios = completion(outcomes), over_ideal(outcomes)
    worst = summary(results, ratios)
    if options.json:
        values = {key: asdict(value) for key, value in results.items()}
        print(json.dumps({"runs": values, "gangs": ratios, "summary": worst}))
        return 1 if outside("schedules", worst) else 0
    return report("schedules", worst)


if __name__ == "__main__":
    sys.exit(main())
