"""Errors of estimated speeds on measured tables of others, beside the papers' methods.

    python -m benchmarks.estimate [--seeds 20] [--json]

Every method sees the same splits. An error is the median of |estimated − measured| / measured
over the hidden entries, averaged over the seeds. Needs the tables at ../shared or
$FAIRLEAD_SHARED. Limits are those of ranges.toml (``estimate``); a broken one makes the exit
status 1.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

# Small matrices: more threads of BLAS cost more than they bring. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.estimate import completion, live, sensitivity, simulations, tables, times
from benchmarks.estimate.completion import Figure


def figures(seeds: int) -> Iterator[Figure]:
    """Yield all figures, one after the other."""
    gavel, sia, pairs = tables.gavel_speeds(), tables.sia_speeds(), tables.gavel_pairs()
    yield from completion.first_guesses("Gavel", gavel)
    yield from completion.first_guesses("Sia", sia)
    yield from completion.hidden_at_random("Gavel", gavel, 0.2, seeds)
    yield from completion.hidden_at_random("Gavel", gavel, 0.5, seeds)
    yield from completion.hidden_at_random("Gavel", gavel, 0.2, seeds, twins=False)
    yield from completion.hidden_at_random("Gavel", gavel, 0.5, seeds, twins=False)
    yield from completion.accelerator_unknown("Gavel", gavel, seeds)
    yield from completion.pairs(pairs, 0.2, seeds)
    yield from completion.hidden_at_random("Sia", sia, 0.2, seeds)
    yield from completion.accelerator_unknown("Sia", sia, seeds)
    yield from times.times(gavel)
    yield from live.learnt_live()
    yield from sensitivity.sensitivity(seeds)
    yield from simulations.learnt_from_nothing()
    yield from simulations.exaggeration()
    yield from simulations.estimated_pairs()
    yield from simulations.exploration()
    yield from simulations.noisy_measurements()


def broken(measured: Iterable[Figure], limits: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for every limit of our own method that is broken."""
    ours = {f.case: f.value for f in measured if f.method in OURS}
    ours |= {f"{f.case}, {f.method}": f.value for f in measured}
    lines = []
    for case, limit in limits.items():
        value = ours.get(case)
        if value is None:
            lines.append(f"{case}: not measured")
        elif not limit.get("least", -float("inf")) <= value <= limit.get("most", float("inf")):
            lines.append(f"{case}: {value:.3g}, not within {limit}")
    return lines


OURS = ("Gaussian process", "factor model", "belief", "data sheets")
"""methods of ``fairlead.estimate``; the others are those of papers, for comparison"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print figures and verdict as JSON")
    options = parser.parse_args()
    measured = []
    for figure in figures(options.seeds):
        measured.append(figure)
        if not options.json:
            print(f"{figure.case:68} {figure.method:26} {figure.value:8.3f}", flush=True)
    limits = tomllib.loads(Path(__file__).parents[1].joinpath("ranges.toml").read_text("utf-8"))
    failures = broken(measured, limits["estimate"])
    if options.json:
        print(json.dumps({"figures": [asdict(f) for f in measured], "broken": failures}, indent=1))
    for line in failures:
        print("broken:", line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
